package varve.clients;

import org.kairosdb.metrics4j.MetricSourceManager;
import org.kairosdb.metrics4j.annotation.Key;
import org.kairosdb.metrics4j.collectors.LongCollector;

/** Counts with metrics4j, which reports to the sink of its configuration. */
final class Reporter {
    private Reporter() {}

    /** What is counted; metrics4j implements it. */
    public interface Requests {
        LongCollector served(@Key("host") String host, @Key("path") String path);
    }

    static void send() throws Exception {
        Requests requests = MetricSourceManager.getSource(Requests.class);
        requests.served("h1", "/a").put(15);
        requests.served("h1", "/a b").put(1); // the blank is not escaped: KairosDB refuses the line
        requests.served("h2", "/a").put(7);
        Thread.sleep(1500);
    }
}
