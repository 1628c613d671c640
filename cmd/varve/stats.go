package main

import (
	"context"
	"math"
	"net/http"
	"strconv"

	"varve/internal/admin"
	"varve/internal/embedded/offline"
)

var statsCommand = command{
	name:     "stats",
	synopsis: "show what takes space, by metric and codec",
	usage:    "[--data-dir DIR | --http-addr ADDR [--tenant NAME]] [--top N]",
	help: `Lists the metrics and codecs that take most of the space of block files. Stop the
server first, or name it with --http-addr: it then estimates from some of the pages.

` + offlineFlags + `  --http-addr ADDR ask the server that runs at ADDR, for example 127.0.0.1:8080
` + tenantFlag + `  --top N          length of the lists (20)
`,
	run: stats,
}

func stats(t terminal, args []string) error {
	if err := refuseCassandra(args, admin.InsteadOfStats); err != nil {
		return err
	}
	l, err := parseFlags(args, "data-dir", "config", "http-addr", "tenant", "top")
	if err != nil {
		return err
	}
	top := admin.StatsTop
	if err := l.number("top", &top, 1, math.MaxInt); err != nil {
		return err
	}
	if err := l.checkPlace(); err != nil {
		return err
	}
	report, err := spaceOf(t, l, top)
	if err != nil {
		return err
	}
	return report.WriteText(t.stdout)
}

func spaceOf(t terminal, l line, top int) (*offline.SpaceReport, error) {
	if l.online() {
		s, err := l.server()
		if err != nil {
			return nil, err
		}
		report := &offline.SpaceReport{}
		return report, s.Read(context.Background(), http.MethodGet, "/admin/stats?top="+strconv.Itoa(top), nil, report)
	}
	var report *offline.SpaceReport
	err := inDirectory(t, l, admin.InsteadOfStats, func(d *offline.Directory) (err error) {
		report, err = d.Space(context.Background(), offline.SpaceOptions{Top: top})
		return err
	})
	return report, err
}
