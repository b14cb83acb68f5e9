package penstock.clients;

import static penstock.clients.Claims.*;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidRecordStateException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Share groups (KIP-932) with the Java client.
 *
 * <p>Usage: Shares BOOTSTRAP RUN-NAME. Prints one JSON line per check, as Checks does.
 */
public final class Shares {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final int LOCK_MS = 2000;

    private final String bootstrap;
    private final String run;
    private final Admin admin;

    private Shares(String bootstrap, String run) {
        this.bootstrap = bootstrap;
        this.run = run;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) {
        Shares shares = new Shares(arguments[0], arguments[1]);
        report("members_share_one_partition", shares::share);
        report("records_are_accepted_by_the_next_poll", shares::implicit);
        report("records_are_accepted_released_and_rejected", shares::verdicts);
        report("a_lease_runs_out_and_a_late_answer_is_refused", shares::runOut);
        report("a_lease_is_renewed", shares::renew);
        report("a_record_is_given_up_after_its_last_try", shares::giveUp);
        report("what_a_member_held_is_free_when_it_closes", shares::close);
        report("compressed_batches_are_read", shares::compressed);
        report("aborted_records_are_not_delivered_where_the_group_says_so", shares::committed);
        report("a_group_begins_where_it_is_told", shares::begin);
        report("share_groups_are_administered", shares::administer);
        report("positions_are_described_altered_and_deleted", shares::positions);
        shares.admin.close();
    }

    /** A share consumer that remembers what it has read. */
    private final class Member implements AutoCloseable, Runnable {
        final KafkaShareConsumer<String, String> consumer;
        final List<ConsumerRecord<String, String>> records = new ArrayList<>();

        Member(String group, String topic, Map<String, Object> more) {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", group);
            settings.put("client.id", "sharer");
            settings.putAll(more);
            consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic));
        }

        List<ConsumerRecord<String, String>> poll() {
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            consumer.poll(POLL).forEach(found::add);
            records.addAll(found);
            return found;
        }

        /** Polls until there is something; answers with it. */
        List<ConsumerRecord<String, String>> next() {
            long deadline = System.nanoTime() + WAIT.toNanos();
            while (true) {
                List<ConsumerRecord<String, String>> found = poll();
                if (!found.isEmpty()) {
                    return found;
                }
                check(System.nanoTime() < deadline, "waited in vain for records");
            }
        }

        void commit() {
            for (Optional<KafkaException> error : consumer.commitSync().values()) {
                check(error.isEmpty(), "commit: " + error);
            }
        }

        @Override
        public void run() {
            poll();
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    private Member explicit(String group, String topic) {
        return new Member(group, topic, Map.of("share.acknowledgement.mode", "explicit"));
    }

    private void share() throws Exception {
        String topic = create("share", 1);
        String group = group(topic);
        try (Member first = new Member(group, topic, Map.of("max.poll.records", 10));
                Member second = new Member(group, topic, Map.of("max.poll.records", 10))) {
            until(() -> members(group) == 2, first, second);
            send(topic, 400);
            until(() -> first.records.size() + second.records.size() >= 400, first, second);
            first.commit();
            second.commit();
            for (int round = 0; round < 10; round++) {
                first.poll();
                second.poll();
            }
            equal(first.records.size() + second.records.size(), 400, "records");
            Set<String> values = new HashSet<>(values(first.records));
            values.addAll(values(second.records));
            equal(values.size(), 400, "values");
            check(first.records.size() > 0 && second.records.size() > 0, "both read");
        }
    }

    private void implicit() throws Exception {
        String topic = create("implicit", 2);
        String group = group(topic);
        send(topic, 10);
        try (Member member = new Member(group, topic, Map.of())) {
            until(() -> member.records.size() == 10, member);
            member.poll();
        }
        try (Member member = new Member(group, topic, Map.of())) {
            send(topic, 1);
            equal(values(member.next()), List.of("0"), "only the new one");
        }
    }

    private void verdicts() throws Exception {
        String topic = create("verdicts", 1);
        String group = group(topic);
        send(topic, 3);
        try (Member member = explicit(group, topic)) {
            List<ConsumerRecord<String, String>> found = member.next();
            equal(values(found), List.of("0", "1", "2"), "values");
            equal(found.get(0).deliveryCount(), Optional.of((short) 1), "first delivery");
            member.consumer.acknowledge(found.get(0), AcknowledgeType.ACCEPT);
            member.consumer.acknowledge(found.get(1), AcknowledgeType.RELEASE);
            member.consumer.acknowledge(found.get(2), AcknowledgeType.REJECT);
            member.commit();
            List<ConsumerRecord<String, String>> again = member.next();
            equal(values(again), List.of("1"), "what comes again");
            equal(again.get(0).deliveryCount(), Optional.of((short) 2), "second delivery");
            member.consumer.acknowledge(again.get(0), AcknowledgeType.ACCEPT);
            member.commit();
        }
        ConsumerRecord<String, String> letter = letter(topic);
        equal(letter.value(), "2", "the letter");
        equal(header(letter, "topic"), topic, "topic");
        equal(header(letter, "partition"), "0", "partition");
        equal(header(letter, "offset"), "2", "offset");
        equal(header(letter, "group"), group, "group");
        equal(header(letter, "attempts"), "1", "attempts");
        equal(header(letter, "error-class"), "rejected", "error");
    }

    private void runOut() throws Exception {
        String topic = create("run-out", 1);
        String group = group(topic, "share.record.lock.duration.ms", "" + LOCK_MS);
        send(topic, 1);
        try (Member slow = explicit(group, topic)) {
            ConsumerRecord<String, String> held = slow.next().get(0);
            equal(slow.consumer.acquisitionLockTimeoutMs(), Optional.of(LOCK_MS), "lock timeout");
            try (Member other = explicit(group, topic)) {
                ConsumerRecord<String, String> again = other.next().get(0);
                equal(again.offset(), held.offset(), "the same record");
                check(again.deliveryCount().get() >= 2, "delivered " + again.deliveryCount());
                slow.consumer.acknowledge(held, AcknowledgeType.ACCEPT);
                Map<TopicIdPartition, Optional<KafkaException>> answer = slow.consumer.commitSync();
                equal(answer.size(), 1, "answers");
                KafkaException error = answer.values().iterator().next().orElse(null);
                check(error instanceof InvalidRecordStateException, "late: " + error);
                other.consumer.acknowledge(again, AcknowledgeType.ACCEPT);
                other.commit();
            }
        }
    }

    private void renew() throws Exception {
        String topic = create("renew", 1);
        String group = group(topic, "share.record.lock.duration.ms", "" + LOCK_MS);
        send(topic, 1);
        try (Member holder = explicit(group, topic); Member other = explicit(group, topic)) {
            ConsumerRecord<String, String> held = holder.next().get(0);
            for (int round = 0; round < 4; round++) {
                Thread.sleep(LOCK_MS / 2);
                holder.consumer.acknowledge(held, AcknowledgeType.RENEW);
                holder.commit();
                check(other.poll().isEmpty(), "held by another");
                holder.poll();
            }
            holder.consumer.acknowledge(held, AcknowledgeType.ACCEPT);
            holder.commit();
            Thread.sleep(LOCK_MS + 500);
            check(other.poll().isEmpty(), "accepted by another");
        }
    }

    private void giveUp() throws Exception {
        String topic = create("give-up", 1);
        String group = group(topic, "share.delivery.count.limit", "2");
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            ProducerRecord<String, String> poison = new ProducerRecord<>(topic, 0, "key", "poison");
            poison.headers().add("mine", "own".getBytes(StandardCharsets.UTF_8));
            producer.send(poison).get();
            producer.send(new ProducerRecord<>(topic, 0, "key", "good")).get();
        }
        try (Member member = explicit(group, topic)) {
            List<String> tries = new ArrayList<>();
            while (tries.size() < 3) {
                for (ConsumerRecord<String, String> record : member.next()) {
                    tries.add(record.value());
                    boolean isGood = record.value().equals("good");
                    member.consumer.acknowledge(record, isGood ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
                }
                member.commit();
            }
            equal(tries, List.of("poison", "good", "poison"), "tries");
        }
        ConsumerRecord<String, String> letter = letter(topic);
        equal(letter.key() + letter.value(), "keypoison", "the letter");
        equal(text(letter.headers().lastHeader("mine").value()), "own", "its own header");
        equal(header(letter, "attempts"), "2", "attempts");
    }

    private void close() throws Exception {
        String topic = create("close", 1);
        String group = group(topic);
        send(topic, 5);
        Member first = explicit(group, topic);
        equal(first.next().size(), 5, "records");
        first.close();
        try (Member second = explicit(group, topic)) {
            List<ConsumerRecord<String, String>> again = second.next();
            equal(values(again), List.of("0", "1", "2", "3", "4"), "all of them");
            again.forEach(record -> second.consumer.acknowledge(record, AcknowledgeType.ACCEPT));
            second.commit();
        }
    }

    private void compressed() throws Exception {
        String topic = create("compressed", 1);
        String group = group(topic);
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) {
            try (KafkaProducer<String, String> producer =
                    producer(Map.of("compression.type", codec, "linger.ms", 50))) {
                for (int number = 0; number < 100; number++) {
                    producer.send(new ProducerRecord<>(topic, codec + number));
                }
            }
        }
        try (Member member = new Member(group, topic, Map.of("max.poll.records", 30))) {
            until(() -> member.records.size() == 400, member);
            equal(new HashSet<>(values(member.records)).size(), 400, "values");
        }
    }

    private void committed() throws Exception {
        String topic = create("committed", 1);
        String group = group(topic, "share.isolation.level", "read_committed");
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", topic))) {
            producer.initTransactions();
            for (String verdict : List.of("aborted", "committed", "aborted", "committed")) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, verdict)).get();
                if (verdict.equals("aborted")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        try (Member member = new Member(group, topic, Map.of())) {
            until(() -> member.records.size() >= 2, member);
            member.poll();
            equal(values(member.records), List.of("committed", "committed"), "values");
        }
    }

    private void begin() throws Exception {
        String topic = create("begin", 1);
        send(topic, 5);
        configure(topic + "-back", "share.auto.offset.reset", "by_duration:PT1H");
        try (Member member = new Member(topic + "-back", topic, Map.of())) {
            until(() -> member.records.size() == 5, member);
        }
        try (Member member = new Member(topic + "-latest", topic, Map.of())) {
            until(() -> start(topic + "-latest", topic) == 5, member);
            send(topic, 1);
            until(() -> member.records.size() == 1, member);
        }
    }

    private void administer() throws Exception {
        String topic = create("administer", 3);
        String group = group(topic);
        send(topic, 3);
        try (Member member = new Member(group, topic, Map.of())) {
            until(() -> member.records.size() == 3, member);
            ShareGroupDescription found = admin.describeShareGroups(List.of(group)).all().get().get(group);
            equal(found.groupState(), GroupState.STABLE, "state");
            equal(found.members().size(), 1, "members");
            equal(found.members().iterator().next().assignment().topicPartitions().size(), 3, "partitions");
            equal(found.members().iterator().next().clientId(), "sharer", "client");
            expect(GroupNotEmptyException.class, () -> admin.deleteShareGroups(List.of(group)).all().get());
        }
        ListGroupsOptions shareOnly = new ListGroupsOptions().withTypes(Set.of(GroupType.SHARE));
        Collection<GroupListing> listed = admin.listGroups(shareOnly).all().get();
        check(listed.stream().anyMatch(row -> row.groupId().equals(group)
            && row.groupState().equals(Optional.of(GroupState.EMPTY))), "listed: " + listed);
        admin.deleteShareGroups(List.of(group)).all().get();
        expect(GroupIdNotFoundException.class, () -> admin.describeShareGroups(List.of(group)).all().get());
        configure(group, "share.auto.offset.reset", "earliest");
        try (Member member = new Member(group, topic, Map.of())) {
            until(() -> member.records.size() == 3, member);
        }
    }

    private void positions() throws Exception {
        String topic = create("positions", 1);
        String group = group(topic);
        TopicPartition place = new TopicPartition(topic, 0);
        send(topic, 10);
        try (Member member = explicit(group, topic)) {
            List<ConsumerRecord<String, String>> found = member.next();
            for (ConsumerRecord<String, String> record : found) {
                boolean isDone = record.offset() < 4 || record.offset() == 6;
                member.consumer.acknowledge(record, isDone ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
            }
            member.commit();
            SharePartitionOffsetInfo info = info(group, place);
            equal(info.startOffset(), 4L, "start");
            equal(info.lag(), Optional.of(5L), "lag");
            expect(GroupNotEmptyException.class,
                () -> admin.alterShareGroupOffsets(group, Map.of(place, 0L)).all().get());
        }
        admin.alterShareGroupOffsets(group, Map.of(place, 2L)).all().get();
        equal(info(group, place).startOffset(), 2L, "moved");
        try (Member member = new Member(group, topic, Map.of())) {
            until(() -> member.records.size() == 8, member);
            equal(new TreeSet<>(values(member.records)).first(), "2", "first");
        }
        admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get();
        equal(admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).all().get().get(group),
            Map.of(), "positions left");
        try (Member member = new Member(group, topic, Map.of())) {
            until(() -> member.records.size() == 10, member);
        }
    }

    // Around the checks.

    private String create(String name, int partitions) throws Exception {
        String topic = "share-" + run + "-" + name;
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        return topic;
    }

    /** A group that reads from the start and tries again without delay. */
    private String group(String topic, String... more) throws Exception {
        String group = topic + "-group";
        configure(group, "share.auto.offset.reset", "earliest");
        configure(group, "share.retry.backoff.ms", "0");
        for (int at = 0; at < more.length; at += 2) {
            configure(group, more[at], more[at + 1]);
        }
        return group;
    }

    private void configure(String group, String name, String value) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
    }

    private KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private void send(String topic, int count) {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, String.valueOf(number)));
            }
        }
    }

    /** The one dead letter of a topic. */
    private ConsumerRecord<String, String> letter(String topic) throws Exception {
        TopicPartition place = new TopicPartition(topic + ".dlq", 0);
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            List<ConsumerRecord<String, String>> letters = new ArrayList<>();
            long deadline = System.nanoTime() + WAIT.toNanos();
            while (letters.isEmpty()) {
                check(System.nanoTime() < deadline, "no letter");
                consumer.poll(POLL).forEach(letters::add);
            }
            consumer.poll(POLL).forEach(letters::add);
            equal(letters.size(), 1, "letters");
            return letters.get(0);
        }
    }

    private static String header(ConsumerRecord<String, String> letter, String name) {
        return text(letter.headers().lastHeader("penstock-dlq-" + name).value());
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private SharePartitionOffsetInfo info(String group, TopicPartition place) throws Exception {
        return admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(group).get().get(place);
    }

    private long start(String group, String topic) throws Exception {
        try {
            SharePartitionOffsetInfo found = info(group, new TopicPartition(topic, 0));
            return found == null ? -1 : found.startOffset();
        } catch (ExecutionException error) {
            return -1;
        }
    }

    private int members(String group) throws Exception {
        try {
            return admin.describeShareGroups(List.of(group)).all().get().get(group).members().size();
        } catch (ExecutionException error) {
            return 0;
        }
    }

    private static List<String> values(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }
}
