package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == floodCommand {
		if err := floodUntilEOF(); err != nil {
			fmt.Fprintln(os.Stderr, "bench: flood:", err)
			os.Exit(1)
		}
		return
	}
	var (
		binary      = flag.String("varve", "", "server to measure; by default it is built from the sources around")
		peers       = flag.String("peers", "all", `peers to compare with: "all", "none", or of victoria,influx,prometheus,kairosdb; those that are not installed are left out`)
		only        = flag.String("only", "", "stages to run, of "+strings.Join(stageNames, ",")+"; by default all")
		quick       = flag.Bool("quick", false, "smaller workloads, one round, no slow peers unless -peers names them")
		rounds      = flag.Int("rounds", 3, "times that each stage of sending is run")
		turns       = flag.Int("turns", 200, "times that each question is asked")
		warm        = flag.Duration("warm", 40*time.Second, "how long a server that runs on Java is sent points and asked questions before it is measured: it is slow until it has compiled what it does")
		connections = flag.Int("connections", 2, "connections to send over")
		results     = flag.String("json", "", "file for the results as JSON")
		profiles    = flag.String("cpuprofile", "", "directory for CPU profiles of Varve, several per stage: go tool pprof -top DIR/W1-*")
		timeout     = flag.Duration("timeout", time.Hour, "end after this time, whatever is left to do")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("-timeout %v has passed", *timeout))
	defer cancel()

	r := &run{rounds: *rounds, turns: *turns, warm: *warm, connections: *connections, profiles: *profiles, quick: *quick, stages: stageNames,
		loaded: make(map[string]string)}
	if *quick {
		r.rounds, r.turns = 1, min(r.turns, 100)
		if *peers == "all" {
			*peers = victoriaTarget{}.name()
		}
	}
	if *only != "" {
		r.stages = strings.Split(*only, ",")
	}
	if err := measure(ctx, r, *binary, *peers, *results); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measure prepares r, runs it, and prints the results, even if they are
// incomplete.
func measure(ctx context.Context, r *run, binary, peers, results string) (err error) {
	for _, stage := range r.stages {
		if !isStage(stage) {
			return fmt.Errorf("no stage %q: there are %s, and single shapes", stage, strings.Join(stageNames, ", "))
		}
	}
	if r.dir, err = os.MkdirTemp("", "varve-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if r.profiles != "" {
		if err := os.MkdirAll(r.profiles, 0o755); err != nil {
			return err
		}
	}
	if binary == "" {
		if binary, err = buildVarve(ctx, r.dir); err != nil {
			return err
		}
	}
	found, versions, err := targets(ctx, binary, peers)
	if err != nil {
		return err
	}
	r.targets = found
	r.book = &book{Machine: thisMachine(), Versions: versions}
	fmt.Printf("%s, %d CPUs, Linux %s, %s\n", r.book.Machine.Model, r.book.Machine.CPUs, r.book.Machine.Kernel, r.book.Machine.Begun)
	for _, t := range found {
		r.book.targets = append(r.book.targets, t.name())
		fmt.Printf("%s: %s\n", t.name(), versions[t.name()])
	}
	err = r.all(ctx)
	fmt.Println("\nRatios are Varve's value divided by the peer's, paired by round, the median of all rounds.")
	err = errors.Join(err, r.book.print(os.Stdout))
	if results != "" {
		err = errors.Join(err, r.book.save(results))
	}
	if len(r.book.Failures) > 0 {
		err = errors.Join(err, fmt.Errorf("%d failures, see above", len(r.book.Failures)))
	}
	return err
}

// thisMachine describes the machine by what /proc reports.
func thisMachine() machine {
	m := machine{CPUs: runtime.NumCPU(), Model: "unknown processor", Begun: time.Now().UTC().Format(time.RFC3339)}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.Model = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	return m
}
