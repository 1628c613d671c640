package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"varve/internal/admin"
	"varve/internal/embedded/offline"
	"varve/internal/units"
)

var backupCommand = command{
	name:     "backup",
	synopsis: "make a consistent copy of a running server's store",
	usage:    "[--http-addr ADDR] [--tenant NAME] [--to NAME]",
	help: `Asks a running server for a consistent copy of its store. The copy contains everything
that was acknowledged before the request. The server keeps running. The copy is the
directory NAME in the server's embedded.backup_dir, by default backups in its data
directory, and appears there once it is complete.

Block files are hard links where possible: the copy is quick and takes no space at
first, but it is on the same disk. Copy the directory to another machine, for example
with rsync. To restore, replace the data directory with it, or start a server with it
as --data-dir.

Flags:
  --http-addr ADDR the server (127.0.0.1:8080)
  --tenant NAME    the tenant whose store is copied; by default the first one of the
                   token in VARVE_TOKEN, and "default" for a token of all tenants
  --to NAME        name of the copy; by default the time
`,
	run: backup,
}

func backup(t terminal, args []string) error {
	if err := refuseCassandra(args, admin.InsteadOfBackup); err != nil {
		return err
	}
	l, err := parseFlags(args, "http-addr", "tenant", "to")
	if err != nil {
		return err
	}
	if !l.online() {
		l.flags["http-addr"] = defaultServer
	}
	s, err := l.server()
	if err != nil {
		return err
	}
	body, err := json.Marshal(admin.BackupRequest{Dir: l.flags["to"]})
	if err != nil {
		return err
	}
	var r offline.BackupReport
	if err := s.Read(context.Background(), http.MethodPost, "/admin/backup", body, &r); err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.stdout, "%s\n%s with %s, %s; %s; %d series; %d bytes were copied, the rest is hard links\n",
		r.Dir, units.Count(r.Files, "block file"), units.Count(r.Samples, "sample"), units.Count(r.FileBytes, "byte"), units.Count(r.Segments, "log segment"), r.Series, r.Copied)
	return err
}
