package varve.clients;

import io.micrometer.core.instrument.Clock;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.kairos.KairosConfig;
import io.micrometer.kairos.KairosMeterRegistry;
import io.micrometer.opentsdb.OpenTSDBConfig;
import io.micrometer.opentsdb.OpenTSDBMeterRegistry;
import java.time.Duration;
import java.util.Map;

/**
 * Measures with Micrometer, and publishes after each of two steps and when it is closed. The steps
 * end by hand: on a busy machine Micrometer's own timer publishes one of them twice, or not at all.
 */
final class Meters {
    private Meters() {}

    /** A clock on which each step takes an hour, in which no timer of Micrometer runs. */
    private static final class Steps implements Clock {
        static final String STEP = "1h";
        private static final long STEP_MS = Duration.ofHours(1).toMillis();

        private volatile long now = (System.currentTimeMillis() / STEP_MS - 3) * STEP_MS;

        void pass(double steps) {
            now += (long) (steps * STEP_MS);
        }

        @Override
        public long wallTime() {
            return now;
        }

        @Override
        public long monotonicTime() {
            return Duration.ofMillis(now).toNanos();
        }
    }

    static void kairos(String uri) {
        Map<String, String> config = Map.of("kairos.uri", uri, "kairos.step", Steps.STEP);
        KairosConfig get = config::get;
        Steps steps = new Steps();
        var registry = new KairosMeterRegistry(get, steps) {
            void endStep() {
                steps.pass(1);
                publish();
            }
        };
        send(registry, steps, registry::endStep);
    }

    static void opentsdb(String uri) {
        Map<String, String> config = Map.of("opentsdb.uri", uri, "opentsdb.step", Steps.STEP);
        OpenTSDBConfig get = config::get;
        Steps steps = new Steps();
        var registry = new OpenTSDBMeterRegistry(get, steps) {
            void endStep() {
                steps.pass(1);
                publish();
            }
        };
        send(registry, steps, registry::endStep);
    }

    private static void send(MeterRegistry registry, Steps steps, Runnable endStep) {
        registry.config().commonTags("host", "h 1", "dc", "a");
        registry.gauge("queue.size", 1.5);
        registry.gauge("not.a.number", Double.NaN);
        registry.counter("http.requests", "uri", "/a b?x=1", "status", "200").increment(6);
        registry.counter("no.status", "status", "").increment();
        registry.summary("payload").record(10);
        registry.timer("lat").record(Duration.ofMillis(5));
        endStep.run();
        endStep.run(); // over one kept-alive connection
        steps.pass(0.5);
        registry.close();
    }
}
