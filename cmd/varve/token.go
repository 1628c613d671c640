package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/audit"
	"varve/internal/auth"
	"varve/internal/config"
	"varve/internal/principal"
)

func tokenCommands() []command {
	const where = `
The token file is auth.token_file, else tokens.json in the data directory. Give the same
--config, --data-dir and environment as to serve. A running server notices the change
within a second. Run the command as the server's user, who must be able to read the file,
or as root: new files then belong to the owner of their directory, and existing files keep
their owner.
`
	return []command{
		{
			name:     "token create",
			synopsis: "create a token for a sender",
			usage:    "NAME --role ROLES [FLAGS]",
			help: `Creates a token and prints it. It is shown only once: the file has its hash.

  --role ROLES      read, write, delete, admin, metrics, or several: read,write
  --tenant TENANTS  the tenants that it applies to; * for all. By default * for admin and
                    metrics, which concern the whole server, else default
  --prefix TEXT     limits it to metrics whose names begin with TEXT
  --expires TIME    how long it is valid, such as 720h; by default for ever

  curl -H "Authorization: Bearer $TOKEN" ...      or, as a password: curl -u any:$TOKEN
` + where,
			run: createToken,
		},
		{
			name:     "token list",
			synopsis: "list tokens, without their secrets",
			usage:    "[FLAGS]",
			help:     "Lists tokens with their roles, tenants and last use, which may be some minutes old.\n" + where,
			run:      listTokens,
		},
		{
			name:     "token revoke",
			synopsis: "revoke a token",
			usage:    "NAME|ID [FLAGS]",
			help: "Removes a token from the file. Within two seconds, a running server ends the requests and\n" +
				"connections that use it.\n" + where,
			run: revokeToken,
		},
	}
}

// tokenLine reads the arguments of a command for tokens. path is the token
// file.
func tokenLine(t terminal, args []string, names ...string) (path string, l line, c config.Config, err error) {
	settings, l, err := splitLine(args, names...)
	if err != nil {
		return "", l, c, err
	}
	loaded, err := load(t, settings)
	if err != nil {
		return "", l, c, err
	}
	return tokenPath(loaded.Config), l, loaded.Config, nil
}

// tokenPath is the path of the token file.
func tokenPath(c config.Config) string { return c.Auth.Path(filepath.Join(c.DataDir, "tokens.json")) }

// asServe says how to find the token file of a server.
const asServe = "give the same --config, --data-dir and environment as to varve serve"

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

func createToken(t terminal, args []string) error {
	path, l, c, err := tokenLine(t, args, "role", "tenant", "prefix", "expires")
	if err != nil {
		return err
	}
	if len(l.words) != 1 {
		return &usageError{errors.New("token create: want one NAME, the owner of the token")}
	}
	g := auth.Grant{Name: l.words[0], Prefix: l.flags["prefix"]}
	if g.Rights, err = principal.ParseRights(l.flags["role"]); err != nil {
		return &usageError{fmt.Errorf("flag --role: %w", err)}
	}
	g.Tenants = auth.DefaultTenants(g.Rights)
	if tenants, ok := l.flags["tenant"]; ok {
		g.Tenants = strings.Split(tenants, ",")
	}
	now, expires, life := time.Now(), time.Time{}, time.Duration(0)
	if err := l.age("expires", &life); err != nil {
		return err
	}
	if life > 0 {
		expires = now.Add(life).UTC().Truncate(time.Second)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	id, shown, err := auth.Create(path, g, expires, now)
	if err != nil {
		return err
	}
	recordToken(t, c, "varve token create", fmt.Sprintf("token %s for %s: role %s, tenants %s, prefix %q", id, g.Name, g.Rights, strings.Join(g.Tenants, ","), g.Prefix))
	fmt.Fprintf(t.stderr, "Token %s for %s was added to %s. This is the only time it is shown:\n", id, g.Name, path)
	fmt.Fprintln(t.stdout, shown)
	for _, name := range auth.Missing(g.Tenants, c.HasTenant) {
		fmt.Fprintf(t.stderr, "Tenant %.100q is not in this configuration. Until you add it to tenants, requests with this token get 404.\n", name)
	}
	if !c.Auth.Enabled {
		fmt.Fprintln(t.stderr, "This configuration does not set auth.enabled: true. Only a server with this setting asks for tokens.")
	}
	return nil
}

func listTokens(t terminal, args []string) error {
	path, l, _, err := tokenLine(t, args)
	if err = cmp.Or(err, l.noWords()); err != nil {
		return err
	}
	tokens, err := auth.List(path)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w; run this command as the user of the server", err)
		}
		return err
	}
	if missing(path) {
		fmt.Fprintf(t.stderr, "There is no token file %s yet. If you expected one, %s.\n", path, asServe)
	}
	w := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tROLE\tTENANTS\tPREFIX\tCREATED\tEXPIRES\tLAST USED")
	for _, k := range tokens {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Grant.Name, k.Grant.Rights, strings.Join(k.Grant.Tenants, ","),
			cmp.Or(k.Grant.Prefix, "-"), day(k.Created), day(k.Expires), day(k.Used))
	}
	return w.Flush()
}

// day writes a time for a list.
func day(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04")
}

func revokeToken(t terminal, args []string) error {
	path, l, c, err := tokenLine(t, args)
	if err != nil {
		return err
	}
	if len(l.words) != 1 {
		return &usageError{errors.New("token revoke: want one NAME or ID; varve token list shows them")}
	}
	if missing(path) {
		return fmt.Errorf("there is no token file %s; %s", path, asServe)
	}
	revoked, err := auth.Revoke(path, l.words[0])
	if err != nil {
		return err
	}
	recordToken(t, c, "varve token revoke", fmt.Sprintf("token %s for %s", revoked.ID, revoked.Grant.Name))
	fmt.Fprintf(t.stdout, "Token %s (%s) is revoked.\n", revoked.ID, revoked.Grant.Name)
	return nil
}

// recordToken writes to the audit log who changed tokens. The token has already been
// changed, so a log that cannot be written only causes a message.
func recordToken(t terminal, c config.Config, action, detail string) {
	log, err := audit.Open(c.Audit.Path(c.DataDir), c.Audit, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(t.stderr, nil)))
	if err != nil {
		fmt.Fprintln(t.stderr, "varve:", err)
		return
	}
	defer log.Close()
	who := "unknown"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	log.Add(audit.Event{Time: time.Now().UTC(), Sender: who, By: "command", Action: action, Detail: detail})
}
