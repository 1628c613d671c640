package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

func main() {
	var (
		binary      = flag.String("varve", "", "server to measure; by default it is built from the sources around")
		connections = flag.Int("connections", 2, "telnet connections to send over")
		hours       = flag.Float64("hours", 6, "length of the workload, in hours of 360 points a series")
		hosts       = flag.Int("hosts", 200, "hosts of the workload, with 20 series each")
		profile     = flag.String("cpuprofile", "", "file for a CPU profile of the server while points come in")
	)
	flag.Parse()
	w := w1
	w.hosts, w.steps = *hosts, int(*hours*360)
	if err := run(w, *binary, *connections, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(w workload, binary string, connections int, profile string) (err error) {
	dir, err := os.MkdirTemp("", "varve-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if binary == "" {
		if binary, err = buildVarve(dir); err != nil {
			return err
		}
	}
	v, err := startVarve(binary, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	fmt.Printf("%s: %d series, %d points, %d connections\n", w.name, w.series(), w.points(), connections)
	if profile == "" {
		return measure(w, v, connections)
	}
	profiled := make(chan error, 1)
	go func() { profiled <- v.profile(profile, 4*time.Second) }()
	return errors.Join(measure(w, v, connections), <-profiled)
}

func measure(w workload, v *varve, connections int) error {
	before, err := v.cpuSeconds()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := send(w, v.line, connections); err != nil {
		return err
	}
	sent := time.Since(began)
	if err := v.awaitIngest(w.points()); err != nil {
		return err
	}
	taken := time.Since(began)
	cpu, err := v.cpuSeconds()
	if err != nil {
		return err
	}
	missing, err := v.missing(w)
	if err != nil {
		return err
	}
	if missing > 0 {
		return fmt.Errorf("%d points are missing", missing)
	}
	if err := v.settle(); err != nil {
		return err
	}
	settled, err := v.cpuSeconds()
	if err != nil {
		return err
	}
	memory, err := v.peakMemory()
	if err != nil {
		return err
	}
	disk, err := diskBytes(v.dir)
	if err != nil {
		return err
	}
	millions := float64(w.points()) / 1e6
	row := func(what, format string, value float64) { fmt.Printf("  %-46s "+format+"\n", what, value) }
	row("sent in, s", "%8.2f", sent.Seconds())
	row("stored in, s", "%8.2f", taken.Seconds())
	row("million points a second", "%8.2f", millions/taken.Seconds())
	row("server CPU s per million points", "%8.3f", (cpu-before)/millions)
	row("  with counting and merging all", "%8.3f", (settled-before)/millions)
	row("bytes on disk per point, settled", "%8.3f", float64(disk)/float64(w.points()))
	for _, part := range []string{"blocks", "log", "catalogue"} {
		bytes, err := diskBytes(filepath.Join(v.dir, part))
		if err != nil {
			return err
		}
		row("  of it "+part, "%8.3f", float64(bytes)/float64(w.points()))
	}
	row("peak memory, MB", "%8.0f", float64(memory)/1e6)
	fmt.Println("  every count is right")
	return nil
}

// send writes the workload over several connections, each with its own hosts.
func send(w workload, addr string, connections int) error {
	errs := make(chan error, connections)
	for c := range connections {
		go func() {
			errs <- func() error {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					return err
				}
				defer conn.Close()
				return w.write(conn, w.hosts*c/connections, w.hosts*(c+1)/connections)
			}()
		}()
	}
	var all []error
	for range connections {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
