package admin

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
)

// ShowDisk registers metrics of whether the store accepts points, and of the space left
// for them.
func ShowDisk(dir string, writable func() error, registry prometheus.Registerer) {
	set := collectors.Named("varve_store_")
	set.GaugeFunc("writable", "1 if the store accepts points, 0 if it refuses them; the log and /admin/rejected say why.", func() float64 {
		if writable() != nil {
			return 0
		}
		return 1
	})
	set.GaugeFunc("disk_free_bytes", "Free space on the file system of data_dir, for this process; -1 if unknown.", func() float64 {
		usage, err := vfs.Default.GetDiskUsage(dir)
		if err != nil {
			return -1
		}
		return float64(usage.AvailBytes)
	})
	set.MustRegister(registry)
}
