package varve.clients;

import io.micrometer.core.instrument.Clock;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Metrics;
import io.micrometer.core.instrument.Tags;
import io.micrometer.kairos.KairosConfig;
import io.micrometer.kairos.KairosMeterRegistry;
import io.micrometer.opentsdb.OpenTSDBConfig;
import io.micrometer.opentsdb.OpenTSDBMeterRegistry;
import java.time.Duration;
import java.util.Map;

/** Measures with Micrometer, which publishes after each step of two seconds and when it is closed. */
final class Meters {
    private Meters() {}

    static MeterRegistry kairos(String uri) {
        Map<String, String> config = Map.of("kairos.uri", uri, "kairos.step", "2s");
        KairosConfig get = config::get;
        return new KairosMeterRegistry(get, Clock.SYSTEM);
    }

    static MeterRegistry opentsdb(String uri) {
        Map<String, String> config = Map.of("opentsdb.uri", uri, "opentsdb.step", "2s");
        OpenTSDBConfig get = config::get;
        return new OpenTSDBMeterRegistry(get, Clock.SYSTEM);
    }

    static void send(MeterRegistry registry) throws Exception {
        registry.config().commonTags("host", "h 1", "dc", "a");
        registry.gauge("queue.size", 1.5);
        registry.gauge("not.a.number", Double.NaN);
        registry.counter("http.requests", "uri", "/a b?x=1", "status", "200").increment(6);
        registry.counter("no.status", "status", "").increment();
        registry.summary("payload").record(10);
        registry.timer("lat").record(Duration.ofMillis(5));
        Thread.sleep(4400); // two steps over one kept-alive connection
        registry.close();
    }
}
