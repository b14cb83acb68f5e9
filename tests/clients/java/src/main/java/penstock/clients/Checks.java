package penstock.clients;

import static penstock.clients.Claims.*;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client against a broker, with its defaults (idempotence on, acks=all).
 *
 * <p>Usage: Checks BOOTSTRAP RUN-NAME. Prints one JSON line per check.
 */
public final class Checks {
    private final String bootstrap;
    private final String run;
    private final Admin admin;

    private Checks(String bootstrap, String run) {
        this.bootstrap = bootstrap;
        this.run = run;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) {
        Checks checks = new Checks(arguments[0], arguments[1]);
        report("topics_are_created_listed_described_and_deleted", checks::topics);
        report("partitions_are_added_but_never_taken_away", checks::partitions);
        report("configs_are_described_altered_and_validated", checks::configs);
        report("the_cluster_and_its_log_dirs_are_described", checks::cluster);
        report("client_quotas_are_set_described_and_removed", checks::quotas);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            report("records_come_back_as_sent_" + codec, () -> checks.codec(codec));
        }
        report("headers_and_nulls_survive", checks::headersAndNulls);
        report("a_too_large_record_is_refused", checks::tooLarge);
        report("offsets_are_found_by_time_and_at_both_ends", checks::offsets);
        report("deleted_records_are_gone", checks::deleteRecords);
        checks.admin.close();
    }

    private void topics() throws Exception {
        String topic = create("topics", 3, Map.of());
        check(admin.listTopics().names().get().contains(topic), "listed");
        var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        equal(described.partitions().size(), 3, "partitions");
        equal(described.partitions().get(2).isr().size(), 1, "in-sync replicas");
        var byId = admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(
            List.of(described.topicId()))).allTopicIds().get();
        equal(byId.get(described.topicId()).name(), topic, "name by topic id");
        expect(TopicExistsException.class, () ->
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get());
        admin.deleteTopics(List.of(topic)).all().get();
        until(() -> !admin.listTopics().names().get().contains(topic));
        expect(UnknownTopicOrPartitionException.class, () ->
            admin.deleteTopics(List.of(topic)).all().get());
    }

    /** As kafka-configs does it for users and clients. */
    private void quotas() throws Exception {
        String user = "user-of-" + run;
        var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, user));
        var only = ClientQuotaFilter.containsOnly(
            List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, user)));
        var rate = new ClientQuotaAlteration.Op("producer_byte_rate", 1048576.0);
        var share = new ClientQuotaAlteration.Op("request_percentage", 12.5);
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(rate, share)))).all().get();
        var described = admin.describeClientQuotas(only).entities().get();
        equal(described, Map.of(entity, Map.of("producer_byte_rate", 1048576.0, "request_percentage", 12.5)), "quotas");
        expect(InvalidRequestException.class, () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
            entity, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", -1.0))))).all().get());
        var gone = List.of(
            new ClientQuotaAlteration.Op("producer_byte_rate", null), new ClientQuotaAlteration.Op("request_percentage", null));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, gone))).all().get();
        equal(admin.describeClientQuotas(only).entities().get(), Map.of(), "none");
    }

    private void partitions() throws Exception {
        String topic = create("partitions", 1, Map.of());
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        until(() -> partitionCount(topic) == 4);
        expect(InvalidPartitionsException.class, () ->
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get());
    }

    private void configs() throws Exception {
        String topic = create("configs", 1, Map.of("retention.ms", "60000"));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ConfigEntry before = describe(resource).get("retention.ms");
        equal(before.value(), "60000", "retention.ms");
        equal(before.source(), ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "its source");
        alter(resource, "retention.ms", "70000");
        until(() -> describe(resource).get("retention.ms").value().equals("70000"));
        expect(InvalidConfigurationException.class, () -> alter(resource, "retention.ms", "soon"));
        expect(InvalidConfigurationException.class, () -> alter(resource, "no.such.config", "1"));
    }

    private void cluster() throws Exception {
        var cluster = admin.describeCluster();
        check(!cluster.clusterId().get().isEmpty(), "cluster id");
        int node = cluster.nodes().get().iterator().next().id();
        equal(cluster.controller().get().id(), node, "controller");
        check(!admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).isEmpty(), "dirs");
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "" + node);
        check(describe(broker).get("message.max.bytes") != null, "broker configs");
    }

    private void codec(String codec) throws Exception {
        String topic = create("codec-" + codec, 1, Map.of());
        List<String> sent = IntStream.range(0, 300).mapToObj(i -> ("value-" + i + " ").repeat(20)).toList();
        try (var producer = producer(Map.of("compression.type", codec, "linger.ms", "20"))) {
            List<Future<RecordMetadata>> waiting = new ArrayList<>();
            for (String value : sent) {
                waiting.add(producer.send(new ProducerRecord<>(topic, bytes("key"), bytes(value))));
            }
            for (int i = 0; i < waiting.size(); i++) {
                equal(waiting.get(i).get().offset(), (long) i, "offset acknowledged");
            }
        }
        List<ConsumerRecord<byte[], byte[]>> records = read(topic, 300);
        equal(records.stream().map(r -> text(r.value())).toList(), sent, "values");
    }

    private void headersAndNulls() throws Exception {
        String topic = create("headers", 1, Map.of());
        try (var producer = producer(Map.of())) {
            var first = new ProducerRecord<byte[], byte[]>(topic, null, bytes("no key"));
            first.headers().add("a", bytes("1")).add("a", bytes("2")).add("null", null);
            producer.send(first).get();
            producer.send(new ProducerRecord<>(topic, bytes("tombstone"), null)).get();
        }
        List<ConsumerRecord<byte[], byte[]>> records = read(topic, 2);
        check(records.get(0).key() == null, "null key");
        equal(records.get(0).headers().toArray().length, 3, "headers");
        equal(text(records.get(0).headers().lastHeader("a").value()), "2", "last header");
        check(records.get(0).headers().lastHeader("null").value() == null, "null header");
        check(records.get(1).value() == null, "null value");
    }

    private void tooLarge() throws Exception {
        String topic = create("too-large", 1, Map.of("max.message.bytes", "100000"));
        try (var producer = producer(Map.of("max.request.size", "5000000"))) {
            expect(RecordTooLargeException.class, () ->
                producer.send(new ProducerRecord<>(topic, new byte[100_001])).get());
            producer.send(new ProducerRecord<>(topic, new byte[90_000])).get();
        }
        equal(read(topic, 1).get(0).value().length, 90_000, "size");
    }

    private void offsets() throws Exception {
        String topic = create("offsets", 1, Map.of("retention.ms", "-1"));
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var producer = producer(Map.of())) {
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(topic, 0, 10_000L + i * 100, null, bytes("x"))).get();
            }
        }
        try (var consumer = consumer()) {
            equal(consumer.beginningOffsets(Set.of(partition)).get(partition), 0L, "beginning");
            equal(consumer.endOffsets(Set.of(partition)).get(partition), 10L, "end");
            var found = consumer.offsetsForTimes(Map.of(partition, 10_450L)).get(partition);
            equal(found.offset(), 5L, "offset by time");
            equal(found.timestamp(), 10_500L, "its timestamp");
            check(consumer.offsetsForTimes(Map.of(partition, 99_000L)).get(partition) == null, "beyond");
        }
        var newest = admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).all().get();
        equal(newest.get(partition).offset(), 9L, "offset of the newest timestamp");
    }

    private void deleteRecords() throws Exception {
        String topic = create("delete-records", 1, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var producer = producer(Map.of())) {
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(topic, bytes("" + i))).get();
            }
        }
        var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(6)));
        equal(deleted.lowWatermarks().get(partition).get().lowWatermark(), 6L, "low watermark");
        equal(text(read(topic, 4).get(0).value()), "6", "first value left");
    }

    private String create(String name, int partitions, Map<String, String> configs) throws Exception {
        String topic = "java-" + name + "-" + run;
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all().get();
        until(() -> partitionCount(topic) == partitions);
        return topic;
    }

    private int partitionCount(String topic) throws Exception {
        try {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        } catch (ExecutionException unknown) {
            return 0;
        }
    }

    private Map<String, ConfigEntry> describe(ConfigResource resource) throws Exception {
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        return config.entries().stream().collect(Collectors.toMap(ConfigEntry::name, entry -> entry));
    }

    private void alter(ConfigResource resource, String name, String value) throws Exception {
        Collection<AlterConfigOp> change =
            List.of(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(resource, change)).all().get();
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.putAll(settings);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private List<ConsumerRecord<byte[], byte[]>> read(String topic, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var consumer = consumer()) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.nanoTime() + WAIT.toNanos();
            while (records.size() < count && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            }
        }
        equal(records.size(), count, "records read");
        return records;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
