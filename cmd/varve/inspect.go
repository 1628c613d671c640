package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"varve/internal/config"
	"varve/internal/diskfs"
	"varve/internal/embedded/datadir"
	"varve/internal/embedded/offline"
	"varve/internal/model"
	"varve/internal/timeline/local"
)

var inspectCommand = command{
	name:     "inspect",
	synopsis: "show what is in a store, down to its chunks",
	usage:    "[--data-dir DIR] [WHAT] | --store=cassandra [SETTINGS] [WHAT] | decode HEX",
	help: `Shows parts of an embedded store whose server is stopped:

  varve inspect                              block files, and counts of the rest
  varve inspect series METRIC [TAG=VALUE..]  the chunks of these series
  varve inspect file NUMBER [PAGE]           the pages of a block file, or a page's chunks
  varve inspect log [records]                the segments of the log, or each record
  varve inspect catalogue                    tables, deletions
  varve inspect timelines                    timelines: layouts, oldest and newest event

` + inspectCassandraHelp + "\n" + offlineFlags,
	run: inspect,
}

func inspect(t terminal, args []string) error {
	c, l, err := parseSettings(t, args, keyspaceFlags...)
	switch {
	case err != nil:
		return err
	case len(l.words) > 0 && l.words[0] == "decode":
		return decode(t, l)
	case c.Store == config.Cassandra:
		return inspectKeyspace(t, c, l)
	case len(l.flags) > 0:
		return &usageError{errors.New("flags --start, --end, --cells, --row-time, --unit, --cluster and --preflight are for --store=cassandra and decode")}
	}
	show, err := inspection(t, c.DataDir, l.words)
	if err != nil {
		return err
	}
	return withDirectory(c.DataDir, show)
}

// inspection returns the function that the words select.
func inspection(t terminal, dataDir string, words []string) (func(*offline.Directory) error, error) {
	if len(words) == 0 {
		return func(d *offline.Directory) error { return d.WriteOverview(t.stdout) }, nil
	}
	what, rest := words[0], words[1:]
	switch {
	case what == "series" && len(rest) > 0:
		tags, err := parseTags(rest[1:])
		return func(d *offline.Directory) error { return d.WriteSeries(t.stdout, rest[0], tags) }, err
	case what == "file" && (len(rest) == 1 || len(rest) == 2):
		number, err := strconv.ParseUint(rest[0], 10, 64)
		if err != nil {
			return nil, &usageError{fmt.Errorf("file %q: want the number of a block file", rest[0])}
		}
		page := -1
		if len(rest) == 2 {
			if page, err = strconv.Atoi(rest[1]); err != nil || page < 0 {
				return nil, &usageError{fmt.Errorf("page %q: want the number of a page", rest[1])}
			}
		}
		return func(d *offline.Directory) error { return d.WriteFile(t.stdout, number, page) }, nil
	case what == "log" && (len(rest) == 0 || len(rest) == 1 && rest[0] == "records"):
		return func(d *offline.Directory) error { return d.WriteLog(t.stdout, len(rest) == 1) }, nil
	case what == "catalogue" && len(rest) == 0:
		return func(d *offline.Directory) error { return d.WriteCatalogue(t.stdout) }, nil
	case what == "timelines" && len(rest) == 0:
		return func(*offline.Directory) error {
			return local.Inspect(context.Background(), diskfs.Reading, filepath.Join(dataDir, datadir.Timelines), t.stdout)
		}, nil
	}
	return nil, &usageError{fmt.Errorf("inspect %s: want series METRIC, file NUMBER, log, catalogue or timelines; see varve help inspect", strings.Join(words, " "))}
}

func parseTags(words []string) ([]model.Tag, error) {
	var tags []model.Tag
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok {
			return nil, &usageError{fmt.Errorf("tag %q: want name=value", w)}
		}
		tags = append(tags, model.Tag{Name: name, Value: value})
	}
	return tags, nil
}
