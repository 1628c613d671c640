package main

import (
	"fmt"
	"log/slog"

	"varve/internal/principal"
	"varve/internal/retention"
	"varve/internal/units"
)

var policiesCommand = command{
	name:     "policies",
	synopsis: "show which retention rule applies to a series",
	usage:    "[FLAGS] [PATH ...]",
	help: `Shows for each PATH which rule applies, why, and what is kept for how long. The rules of
retention.policies in the configuration file come first, then those of storage-schemas.conf
and storage-aggregation.conf. The path of a series with tags is name;tag=value;tag=value.
Without a PATH it lists the rules. It takes the same flags as serve and needs no server, so
you can try other files. To ask a running server, use GET /admin/policies?path=PATH.

  --tenant NAME  the rules of a tenant; by default those of "default"

  varve policies --config varve.yaml web.a.requests 'disk.used;host=a'
`,
	run: policies,
}

func policies(t terminal, args []string) error {
	settings, l, err := splitLine(args, "tenant")
	if err != nil {
		return err
	}
	loaded, err := load(t, settings)
	if err != nil {
		return err
	}
	c := loaded.Config
	book, err := c.Book(slog.New(slog.NewTextHandler(t.stderr, nil)))
	if err != nil {
		return err
	}
	tenant := principal.Default
	if name, ok := l.flags["tenant"]; ok {
		if tenant = name; !c.HasTenant(name) {
			return &usageError{fmt.Errorf("flag --tenant: there is no tenant %q in the configuration", name)}
		}
	}
	book = book.For(tenant)
	if c.Retention.Enforce {
		fmt.Fprintln(t.stdout, "retention.enforce is set: samples older than a stage are downsampled, and removed after the last stage.")
	} else {
		fmt.Fprintln(t.stdout, "retention.enforce is not set: every sample is kept. Stages only set the step of Graphite's API.")
	}
	if len(l.words) == 0 {
		listRules(t, book)
	}
	for _, path := range l.words {
		fmt.Fprintf(t.stdout, "\n%v", book.Report(path))
	}
	return nil
}

func listRules(t terminal, book *retention.Book) {
	if len(book.Rules) == 0 && len(book.Aggregations) == 0 {
		fmt.Fprintln(t.stdout, "\nThere are no rules. Define them in retention.policies or graphite.storage_schemas of the configuration (--config).")
		return
	}
	fmt.Fprintf(t.stdout, "\n%s with stages; the first one that matches a series applies:\n", units.Count(len(book.Rules), "rule"))
	for _, r := range book.Rules {
		fmt.Fprintf(t.stdout, "  %v\n", r)
	}
	if len(book.Aggregations) == 0 {
		return
	}
	fmt.Fprintf(t.stdout, "%s:\n", units.Count(len(book.Aggregations), "aggregation rule"))
	for _, a := range book.Aggregations {
		fmt.Fprintf(t.stdout, "  [%s] %s: %s, xFilesFactor %g\n", a.Name, a.Pattern, a.Method, a.XFilesFactor)
	}
}
