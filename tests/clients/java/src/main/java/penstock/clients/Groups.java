package penstock.clients;

import static penstock.clients.Claims.*;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Groups (classic and consumer protocol) and transactions with the Java client.
 *
 * <p>Usage: Groups BOOTSTRAP RUN-NAME. Prints one JSON line per check, as Checks does.
 */
public final class Groups {
    private static final Duration POLL = Duration.ofMillis(50);

    private final String bootstrap;
    private final String run;
    private final Admin admin;

    private Groups(String bootstrap, String run) {
        this.bootstrap = bootstrap;
        this.run = run;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) {
        Groups groups = new Groups(arguments[0], arguments[1]);
        for (String protocol : List.of("classic", "consumer")) {
            report("members_share_and_take_over_" + protocol, () -> groups.share(protocol));
            report("a_group_goes_on_where_it_committed_" + protocol, () -> groups.commits(protocol));
            report("seek_pause_and_resume_" + protocol, () -> groups.seek(protocol));
            report("a_static_member_comes_back_" + protocol, () -> groups.statics(protocol));
            report("groups_are_administered_" + protocol, () -> groups.administer(protocol));
            report("consume_transform_produce_" + protocol, () -> groups.transform(protocol));
        }
        report("a_pattern_is_matched_by_the_broker", groups::pattern);
        report("a_group_moves_to_the_new_protocol_and_back", groups::upgrade);
        report("a_group_has_configs_of_its_own", groups::groupConfigs);
        report("transactions_commit_and_abort", groups::transactions);
        report("a_second_producer_fences_the_first", groups::fencing);
        report("transactions_are_listed_and_described", groups::describeTransactions);
        groups.admin.close();
    }

    /** A consumer that remembers what it was given and has read. */
    private final class Member implements AutoCloseable, Runnable {
        final KafkaConsumer<String, String> consumer;
        final List<ConsumerRecord<String, String>> records = new ArrayList<>();
        final List<TopicPartition> revoked = new ArrayList<>();

        Member(String protocol, String group, Map<String, Object> more) {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", group);
            settings.put("group.protocol", protocol);
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", false);
            settings.put("isolation.level", "read_committed");
            if (protocol.equals("classic")) {
                settings.put("session.timeout.ms", 6000);
                settings.put("heartbeat.interval.ms", 300);
            }
            settings.putAll(more);
            consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        }

        Member subscribe(String topic) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    revoked.addAll(partitions);
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}
            });
            return this;
        }

        void poll() {
            consumer.poll(POLL).forEach(records::add);
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

    private void share(String protocol) throws Exception {
        String topic = create("share-" + protocol, 6);
        String group = topic + "-group";
        try (Member first = new Member(protocol, group, Map.of()).subscribe(topic)) {
            until(() -> first.consumer.assignment().size() == 6, first);
            try (Member second = new Member(protocol, group, Map.of()).subscribe(topic)) {
                until(() -> first.consumer.assignment().size() == 3
                    && second.consumer.assignment().size() == 3, first, second);
                check(Collections.disjoint(first.consumer.assignment(), second.consumer.assignment()), "disjoint");
                send(topic, 60);
                until(() -> first.records.size() + second.records.size() == 60, first, second);
            }
            until(() -> first.consumer.assignment().size() == 6, first);
        }
    }

    private void commits(String protocol) throws Exception {
        String topic = create("commits-" + protocol, 1);
        String group = topic + "-group";
        TopicPartition place = new TopicPartition(topic, 0);
        send(topic, 10);
        try (Member first = new Member(protocol, group, Map.of()).subscribe(topic)) {
            until(() -> first.records.size() == 10, first);
            first.consumer.commitSync(Map.of(place, new OffsetAndMetadata(4, "halfway")));
            boolean[] called = {false};
            first.consumer.commitAsync(Map.of(place, new OffsetAndMetadata(5, "later")), (offsets, error) -> {
                called[0] = error == null;
            });
            until(() -> called[0], first);
        }
        try (Member second = new Member(protocol, group, Map.of()).subscribe(topic)) {
            until(() -> second.records.size() == 5, second);
            equal(second.records.get(0).offset(), 5L, "where it goes on");
            equal(second.consumer.committed(Set.of(place)).get(place).metadata(), "later", "metadata");
        }
    }

    private void seek(String protocol) throws Exception {
        String topic = create("seek-" + protocol, 2);
        send(topic, 20);
        try (Member member = new Member(protocol, topic + "-group", Map.of()).subscribe(topic)) {
            until(() -> member.records.size() == 20, member);
            member.records.clear();
            member.consumer.pause(Set.of(new TopicPartition(topic, 0)));
            member.consumer.seekToBeginning(member.consumer.assignment());
            until(() -> member.records.size() == 10, member);
            check(member.records.stream().allMatch(r -> r.partition() == 1), "only what is not paused");
            member.consumer.resume(Set.of(new TopicPartition(topic, 0)));
            until(() -> member.records.size() == 20, member);
        }
    }

    private void statics(String protocol) throws Exception {
        String topic = create("static-" + protocol, 4);
        String group = topic + "-group";
        try (Member one = new Member(protocol, group, Map.of("group.instance.id", "one")).subscribe(topic)) {
            Member two = new Member(protocol, group, Map.of("group.instance.id", "two")).subscribe(topic);
            until(() -> one.consumer.assignment().size() == 2 && two.consumer.assignment().size() == 2, one, two);
            Set<TopicPartition> held = new HashSet<>(two.consumer.assignment());
            int revoked = one.revoked.size();
            two.close();
            try (Member back = new Member(protocol, group, Map.of("group.instance.id", "two")).subscribe(topic)) {
                until(() -> back.consumer.assignment().equals(held), one, back);
                equal(one.revoked.size(), revoked, "the other one was left alone");
            }
        }
    }

    private void administer(String protocol) throws Exception {
        String topic = create("administer-" + protocol, 2);
        String group = topic + "-group";
        TopicPartition place = new TopicPartition(topic, 0);
        try (Member member = new Member(protocol, group, Map.of("client.id", "lister")).subscribe(topic)) {
            until(() -> member.consumer.assignment().size() == 2, member);
            member.consumer.commitSync(Map.of(place, new OffsetAndMetadata(0)));
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            equal(described.groupState(), GroupState.STABLE, "state");
            equal(described.type(), protocol.equals("classic") ? GroupType.CLASSIC : GroupType.CONSUMER, "type");
            equal(described.members().iterator().next().assignment().topicPartitions().size(), 2, "assigned");
            check(admin.listGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), "listed");
            expect(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        }
        admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(7))).all().get();
        var offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        equal(offsets.get(place).offset(), 7L, "altered");
        admin.deleteConsumerGroupOffsets(group, Set.of(place)).all().get();
        check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().isEmpty(), "forgotten");
        admin.deleteConsumerGroups(List.of(group)).all().get();
        check(admin.listGroups().all().get().stream().noneMatch(g -> g.groupId().equals(group)), "gone");
    }

    private void pattern() throws Exception {
        String first = create("pattern-a", 1);
        try (Member member = new Member("consumer", first + "-group", Map.of())) {
            member.consumer.subscribe(new SubscriptionPattern("pattern-[ab]-" + run));
            until(() -> member.consumer.assignment().size() == 1, member);
            create("pattern-b", 1);
            until(() -> member.consumer.assignment().size() == 2, member);
        }
    }

    private void upgrade() throws Exception {
        String topic = create("upgrade", 4);
        String group = topic + "-group";
        Map<String, Object> cooperative = Map.of("partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        try (Member old = new Member("classic", group, cooperative).subscribe(topic)) {
            until(() -> old.consumer.assignment().size() == 4, old);
            try (Member modern = new Member("consumer", group, Map.of()).subscribe(topic)) {
                until(() -> old.consumer.assignment().size() == 2 && modern.consumer.assignment().size() == 2,
                    old, modern);
                var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                equal(described.type(), GroupType.CONSUMER, "type");
                send(topic, 40);
                until(() -> old.records.size() + modern.records.size() == 40, old, modern);
            }
            until(() -> old.consumer.assignment().size() == 4, old);
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            equal(described.type(), GroupType.CLASSIC, "type afterwards");
        }
    }

    private void groupConfigs() throws Exception {
        var resource = new org.apache.kafka.common.config.ConfigResource(
            org.apache.kafka.common.config.ConfigResource.Type.GROUP, "configured-" + run);
        var wanted = new AlterConfigOp(
            new ConfigEntry("consumer.session.timeout.ms", "50000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(wanted))).all().get();
        until(() -> "50000".equals(admin.describeConfigs(List.of(resource)).all().get().get(resource)
            .get("consumer.session.timeout.ms").value()));
    }

    private KafkaProducer<String, String> transactional(String name) {
        KafkaProducer<String, String> producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "transactional.id", name, "transaction.timeout.ms", 60000),
            new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private void transactions() throws Exception {
        String topic = create("transactions", 2);
        try (var producer = transactional(topic)) {
            for (int number = 0; number < 20; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, number % 2, null, String.valueOf(number)));
                // The client's sender asks whether batches are incomplete before it takes the lock
                // under which it takes EndTxn (as in KAFKA-5449): on a busy machine it can commit
                // ahead of a batch just sent, and any broker then says INVALID_TXN_STATE.
                producer.flush();
                if (number % 4 == 3) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        try (Member member = new Member("consumer", topic + "-group", Map.of()).subscribe(topic)) {
            until(() -> member.records.size() == 15, member);
            for (int extra = 0; extra < 10; extra++) {
                member.poll();
            }
            equal(member.records.size(), 15, "no aborted ones");
        }
    }

    private void fencing() throws Exception {
        String topic = create("fencing", 1);
        try (var old = transactional(topic)) {
            old.beginTransaction();
            old.send(new ProducerRecord<>(topic, "old")).get();
            try (var young = transactional(topic)) {
                expect(InvalidProducerEpochException.class,
                    () -> old.send(new ProducerRecord<>(topic, "late")).get());
                expect(ProducerFencedException.class, old::abortTransaction);
                young.beginTransaction();
                young.send(new ProducerRecord<>(topic, "young"));
                young.flush();
                young.commitTransaction();
            }
        }
        try (Member member = new Member("classic", topic + "-group", Map.of()).subscribe(topic)) {
            until(() -> member.records.size() == 1, member);
            equal(member.records.get(0).value(), "young", "the one that counts");
        }
    }

    private void describeTransactions() throws Exception {
        String topic = create("described", 1);
        try (var producer = transactional(topic)) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "open")).get();
            var described = admin.describeTransactions(List.of(topic)).all().get().get(topic);
            equal(described.state(), TransactionState.ONGOING, "state");
            equal(described.topicPartitions(), Set.of(new TopicPartition(topic, 0)), "partitions");
            var options = new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING));
            check(admin.listTransactions(options).all().get().stream()
                .anyMatch(t -> t.transactionalId().equals(topic)), "listed");
            var producers = admin.describeProducers(List.of(new TopicPartition(topic, 0))).all().get();
            check(producers.values().iterator().next().activeProducers().get(0).currentTransactionStartOffset()
                .isPresent(), "the log knows it is open");
            producer.abortTransaction();
        }
    }

    private void transform(String protocol) throws Exception {
        String source = create("source-" + protocol, 2);
        String target = create("target-" + protocol, 2);
        String group = source + "-group";
        send(source, 50);
        try (var producer = transactional(source);
            Member member = new Member(protocol, group, Map.of("max.poll.records", 7)).subscribe(source)) {
            int copied = 0;
            int turn = 0;
            long deadline = System.nanoTime() + WAIT.toNanos();
            while (copied < 50) {
                check(System.nanoTime() < deadline, "copied only " + copied);
                member.records.clear();
                member.poll();
                if (member.records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                Map<TopicPartition, Long> starts = new HashMap<>();
                for (var record : member.records) {
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    producer.send(new ProducerRecord<>(target, record.value()));
                    starts.putIfAbsent(place, record.offset());
                    ends.put(place, new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(ends, member.consumer.groupMetadata());
                if (turn++ % 3 == 1) {
                    producer.abortTransaction();
                    starts.forEach(member.consumer::seek);
                } else {
                    producer.flush(); // As in `transactions`.
                    producer.commitTransaction();
                    copied += member.records.size();
                }
            }
            var offsets = member.consumer.committed(member.consumer.assignment());
            equal(offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum(), 50L, "positions");
        }
        try (Member reader = new Member("classic", target + "-group", Map.of()).subscribe(target)) {
            until(() -> reader.records.size() >= 50, reader);
            Set<String> values = new HashSet<>();
            reader.records.forEach(record -> check(values.add(record.value()), "twice: " + record.value()));
            equal(values.size(), 50, "each came over once");
        }
    }

    private String create(String name, int partitions) throws Exception {
        String topic = name + "-" + run;
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        return topic;
    }

    private void send(String topic, int count) throws Exception {
        try (var producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer())) {
            int partitions = producer.partitionsFor(topic).size();
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, number % partitions, null, String.valueOf(number)));
            }
        }
    }
}
