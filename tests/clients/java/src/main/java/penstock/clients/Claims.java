package penstock.clients;

import java.time.Duration;
import java.util.concurrent.ExecutionException;

/** What checks are made of: claims, waiting for them, and a report of each check by its name. */
final class Claims {
    static final Duration WAIT = Duration.ofSeconds(60);

    private Claims() {}

    interface Action {
        void run() throws Exception;
    }

    interface Question {
        boolean ask() throws Exception;
    }

    /** Prints one JSON line, and goes on after a failure, so that each is reported by name. */
    static void report(String name, Action check) {
        String error = "";
        try {
            check.run();
        } catch (Throwable failure) {
            StackTraceElement at = failure.getStackTrace().length > 0 ? own(failure) : null;
            error = failure + (failure.getCause() == null ? "" : " / " + failure.getCause()) + " at " + at;
        }
        boolean ok = error.isEmpty();
        System.out.printf("{\"check\": \"%s\", \"ok\": %b, \"error\": \"%s\"}%n", name, ok, escape(error));
    }

    private static StackTraceElement own(Throwable failure) {
        for (StackTraceElement frame : failure.getStackTrace()) {
            String name = frame.getClassName();
            if (name.startsWith("penstock.") && !name.equals(Claims.class.getName())) {
                return frame;
            }
        }
        return failure.getStackTrace()[0];
    }

    private static String escape(String text) {
        return text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ").replace("\t", " ");
    }

    static void check(boolean truth, String what) {
        if (!truth) {
            throw new AssertionError(what);
        }
    }

    static void equal(Object found, Object wanted, String what) {
        check(wanted.equals(found), what + ": " + found + " instead of " + wanted);
    }

    /** Whatever it is, and wherever it is in what was thrown. */
    static void expect(Class<? extends Throwable> kind, Action action) throws Exception {
        try {
            action.run();
        } catch (Exception error) {
            Throwable found = error instanceof ExecutionException ? error.getCause() : error;
            if (kind.isInstance(found) || kind.isInstance(found.getCause())) {
                return;
            }
            throw error;
        }
        throw new AssertionError("no " + kind.getSimpleName());
    }

    /** Asks until it is so, and runs the rest in between. */
    static void until(Question question, Runnable... between) throws Exception {
        long deadline = System.nanoTime() + WAIT.toNanos();
        while (!question.ask()) {
            check(System.nanoTime() < deadline, "waited in vain");
            for (Runnable one : between) {
                one.run();
            }
            if (between.length == 0) {
                Thread.sleep(50);
            }
        }
    }
}
