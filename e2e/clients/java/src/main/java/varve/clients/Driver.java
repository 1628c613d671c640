package varve.clients;

/**
 * Runs one of the Java clients against a server. The first argument says which:
 *
 * <pre>
 * kairosdb URL                  KairosDB's client, by commands on standard input (see Shell)
 * telnet HOST PORT              its telnet client
 * micrometer-kairos URI         Micrometer's registry for KairosDB
 * micrometer-opentsdb URI       and the one for OpenTSDB
 * metrics4j                     with the configuration in the system property METRICS4J_CONFIG
 * </pre>
 */
public final class Driver {
    private Driver() {}

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "kairosdb" -> new Shell(args[1]).run(System.in, System.out);
            case "telnet" -> Telnet.send(args[1], Integer.parseInt(args[2]));
            case "micrometer-kairos" -> Meters.kairos(args[1]);
            case "micrometer-opentsdb" -> Meters.opentsdb(args[1]);
            case "metrics4j" -> Reporter.send();
            default -> throw new IllegalArgumentException(args[0]);
        }
    }
}
