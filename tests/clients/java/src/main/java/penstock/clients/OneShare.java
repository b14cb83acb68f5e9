package penstock.clients;

import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Takes one record of a queue, accepts it, and prints how often it was delivered. */
public final class OneShare {
    private OneShare() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings =
                Map.of(
                        "bootstrap.servers", arguments[0],
                        "group.id", arguments[1],
                        "share.acknowledgement.mode", "explicit");
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(
                        settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(java.util.List.of(arguments[2]));
            for (int tries = 0; tries < 300; tries++) {
                ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, String> one : found) {
                    consumer.acknowledge(one, AcknowledgeType.ACCEPT);
                    consumer.commitSync();
                    System.out.println("delivered " + one.deliveryCount().get());
                    return;
                }
            }
        }
        System.exit(1);
    }
}
