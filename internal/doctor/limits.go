package doctor

import (
	"fmt"

	"varve/internal/config"
	"varve/internal/machine"
)

// openFiles compares the limit of open files with the number that the settings allow.
func openFiles(c config.Config, limit func() (uint64, bool)) Finding {
	const check = "open files"
	have, known := limit()
	need := c.Connections() + config.OtherFiles
	for _, t := range c.Tenants {
		need += uint64(3*t.MaxConnections + config.OtherFiles/4)
	}
	do := fmt.Sprintf("raise it to %d or more: LimitNOFILE= in the unit, ulimit -n in a shell, nofile in a container; this is the limit of varve doctor itself, the server may have another", need)
	switch {
	case !known:
		return ok(check, "the limit is not known on this system")
	case have < 1024:
		return Finding{check, Fault, fmt.Sprintf("at most %d", have), do}
	case have < need:
		return Finding{check, Warning, fmt.Sprintf("at most %d; connections and files may need %d, so the server accepts fewer connections", have, need), do}
	}
	return ok(check, "at most %d, %d may be needed", have, need)
}

// memory compares the memory that the settings allow with that of the machine.
func memory(c config.Config) Finding {
	return memoryFits(machine.Memory(), memoryOf(c))
}

// memoryOf adds up the memory that the settings allow on this machine.
func memoryOf(c config.Config) int64 {
	sum := machine.Share(int64(c.Ingest.MaxSeriesMemory)) + machine.Share(int64(c.Query.TotalMemory)) +
		int64(c.Ingest.Bodies()+c.Ingest.Buffers()) + c.Ingest.AliasMemory() + int64(c.Kairos.QueryCache)
	if c.Store == config.Cassandra {
		written, read := int64(1+len(c.Cassandra.Keyspaces)), int64(len(c.Cassandra.ReadClusters))
		sum += written*int64(c.Cassandra.Spool.MaxMemory) + (written+read)*(int64(c.Cassandra.Read.PostingsCacheBytes)+int64(c.Cassandra.Read.ChunkCacheBytes))
	} else {
		sum += int64(c.Embedded.LargestHead(machine.Memory())) + int64(c.Embedded.PageCacheBytes)
	}
	for _, t := range c.Tenants {
		sum += int64(t.MaxSeriesMemory) + int64(t.QueryMemory)
	}
	return sum
}

func memoryFits(have, may int64) Finding {
	const check = "memory"
	const do = "give the machine or its control group more, or lower ingest.max_series_memory, query.total_memory, ingest.body_memory or the limits of tenants"
	switch {
	case have == 0:
		return ok(check, "its size is not known on this system; the settings allow %s", size(may))
	case may > have/5*4: // see machine.LimitGarbage
		return Finding{check, Warning, fmt.Sprintf("the settings allow %s, and the machine or its control group has %s: less than a fifth is left for garbage, and the kernel may kill the server when memory runs out", size(may), size(have)), do}
	}
	return ok(check, "the settings allow %s of %s", size(may), size(have))
}
