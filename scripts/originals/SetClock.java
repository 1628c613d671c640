import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

import org.apache.cassandra.utils.Clock;

/**
 * The wall clock of a Cassandra node in tests: that of the machine and what the file
 * of the property varve.clock says, 8 bytes, little-endian, nanoseconds. The file is
 * mapped, so that a change is seen at once. Time that has passed is measured as
 * ever: only the wall clock jumps.
 */
public final class SetClock implements Clock {
    private final ByteBuffer aheadNanos;

    public SetClock() throws IOException {
        try (FileChannel file = FileChannel.open(Path.of(System.getProperty("varve.clock")), StandardOpenOption.READ)) {
            aheadNanos = file.map(FileChannel.MapMode.READ_ONLY, 0, Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        }
    }

    @Override
    public long nanoTime() {
        return System.nanoTime();
    }

    @Override
    public long currentTimeMillis() {
        return System.currentTimeMillis() + aheadNanos.getLong(0) / 1_000_000;
    }
}
