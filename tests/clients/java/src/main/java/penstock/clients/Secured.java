package penstock.clients;

import java.io.FileInputStream;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends one record with the settings of a file, and says what came of it as JSON. */
public final class Secured {
    private Secured() {}

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (FileInputStream file = new FileInputStream(arguments[0])) {
            settings.load(file);
        }
        settings.put("max.block.ms", "20000");
        settings.put("delivery.timeout.ms", "20000");
        settings.put("request.timeout.ms", "10000");
        String said;
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            long offset = producer.send(new ProducerRecord<>(arguments[1], "value")).get().offset();
            said = "{\"offset\": " + offset + "}";
        } catch (ExecutionException failed) {
            said = "{\"error\": \"" + failed.getCause().getClass().getSimpleName() + "\"}";
        }
        System.out.println(said);
    }
}
