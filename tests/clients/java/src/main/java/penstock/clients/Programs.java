package penstock.clients;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;

/**
 * Programs, one after the other in one JVM: starting one for each takes longer than what they do.
 *
 * <p>Each line of the standard input is a class and its arguments, separated by tabs. After what the
 * program has printed comes DONE.
 */
public final class Programs {
    static final String DONE = "== done";

    private Programs() {}

    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            String[] arguments = Arrays.copyOfRange(words, 1, words.length);
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            System.out.println(DONE);
            System.out.flush();
        }
    }
}
