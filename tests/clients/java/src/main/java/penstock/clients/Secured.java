package penstock.clients;

import java.io.FileInputStream;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends records with the settings of a file, and says what came of it as JSON. With a count of
 * repeated logins to wait for, it goes on sending until its connections have logged in again so
 * often, or a record fails.
 */
public final class Secured {
    private static final String TOKEN = "sasl.oauthbearer.token.endpoint.url";
    private static final String ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.";

    private Secured() {}

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (FileInputStream file = new FileInputStream(arguments[0])) {
            settings.load(file);
        }
        settings.putIfAbsent("max.block.ms", "20000");
        settings.put("delivery.timeout.ms", "20000");
        settings.put("request.timeout.ms", "10000");
        if (settings.containsKey(TOKEN)) {
            System.setProperty(ALLOWED + "urls", settings.getProperty(TOKEN));
        }
        double wanted = arguments.length > 2 ? Double.parseDouble(arguments[2]) : 0;
        String said;
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            said = send(producer, arguments[1], wanted);
        } catch (Exception failed) {
            said = failure(failed);
        }
        System.out.println(said);
    }

    private static String send(KafkaProducer<String, String> producer, String topic, double wanted)
            throws Exception {
        long end = System.nanoTime() + 30_000_000_000L;
        try {
            while (true) {
                long offset = producer.send(new ProducerRecord<>(topic, "value")).get().offset();
                double repeated = metric(producer, "successful-reauthentication-total");
                if (repeated >= wanted || System.nanoTime() > end) {
                    return "{\"offset\": " + offset + ", \"repeated\": " + repeated + "}";
                }
                Thread.sleep(50);
            }
        } catch (ExecutionException failed) {
            return failure(failed.getCause());
        }
    }

    private static double metric(KafkaProducer<String, String> producer, String name) {
        for (Map.Entry<MetricName, ? extends Metric> entry : producer.metrics().entrySet()) {
            if (entry.getKey().name().equals(name)
                    && entry.getKey().group().equals("producer-metrics")) {
                return (double) entry.getValue().metricValue();
            }
        }
        return 0;
    }

    private static String failure(Throwable failed) {
        StringBuilder words = new StringBuilder();
        for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
            words.append(cause.getMessage()).append("; ");
        }
        String text = words.toString().replaceAll("[\\\\\"\\p{Cntrl}]", " ");
        String kind = failed.getClass().getSimpleName();
        return "{\"error\": \"" + kind + "\", \"message\": \"" + text + "\"}";
    }
}
