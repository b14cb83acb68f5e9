package penstock.clients;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/**
 * The JDK's HTTP client with its defaults: it offers HTTP/2 with every request ("Upgrade: h2c").
 *
 * <p>Usage: HttpPost URL BODY [NAME VALUE]... Prints the status, a space, and the answer's body.
 */
public final class HttpPost {
    private static final HttpClient CLIENT = HttpClient.newHttpClient();

    private HttpPost() {}

    public static void main(String[] arguments) throws Exception {
        HttpRequest.Builder request =
                HttpRequest.newBuilder(URI.create(arguments[0]))
                        .POST(HttpRequest.BodyPublishers.ofString(arguments[1]));
        for (int index = 2; index < arguments.length; index += 2) {
            request.header(arguments[index], arguments[index + 1]);
        }
        HttpResponse<String> answer =
                CLIENT.send(request.build(), HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.statusCode() + " " + answer.body().replace("\n", " "));
    }
}
