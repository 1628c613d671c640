package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"varve/internal/config"
)

// A command is one word after varve.
type command struct {
	name     string
	synopsis string // one line in the overview
	usage    string // text after the name; "" = nothing, or [FLAGS] if settings is set
	help     string // after the usage line
	settings bool   // takes all settings as flags
	run      func(t terminal, args []string) error
}

// commands lists the commands of varve. It is a function because help refers to
// it.
func commands() []command {
	return slices.Concat(ownCommands(), tokenCommands())
}

func ownCommands() []command {
	return []command{
		{
			name:     "serve",
			synopsis: "run the server",
			help: `Runs the server until it is interrupted. No configuration is needed: data is kept
in ./varve-data, HTTP is on 127.0.0.1:8080, telnet on 127.0.0.1:4242, and Graphite's
carbon on 127.0.0.1:2003 (lines) and 2004 (pickles).
With --store=cassandra data is in a keyspace, which KairosDB servers may also use:
  varve serve --store=cassandra --cassandra-hosts=10.0.0.1 --cassandra-keyspace=kairosdb
or with the configuration of a KairosDB server, beside that server or instead of it:
  varve serve --kairosdb-conf=/opt/kairosdb/conf/kairosdb.conf
Instead of a carbon-cache, with its configuration:
  varve serve --carbon-conf=/etc/carbon/carbon.conf
`,
			settings: true,
			run:      serve,
		},
		{
			name:     "config",
			synopsis: "print the effective configuration",
			help: `Prints the effective configuration as a YAML file with comments. For each value that is
not the default, it says whether a file, the environment or a flag sets it. It takes the
same flags as serve. It also validates the configuration: the exit status is 2 if it is
invalid.
`,
			settings: true,
			run:      printConfig,
		},
		doctorCommand,
		healthCommand,
		checkCommand,
		repairCommand,
		inspectCommand,
		statsCommand,
		backupCommand,
		exportCommand,
		exportWhisperCommand,
		importCommand,
		importWhisperCommand,
		compareCommand,
		policiesCommand,
		timelineCommand,
		{
			name:     "version",
			synopsis: "print the version",
			help:     "Prints the version, and what the binary was built with.\n",
			run:      printVersion,
		},
		{
			name:     "help",
			synopsis: "explain a command",
			usage:    "[COMMAND]",
			help:     "varve help COMMAND explains a command; varve help lists them. varve help serve --all\nlists all settings.\n",
			run:      help,
		},
	}
}

// dispatch runs the command that args begin with.
func dispatch(t terminal, args []string) error {
	if len(args) == 0 {
		overview(t.stderr)
		return &usageError{errors.New("no command given")}
	}
	name := args[0]
	switch name {
	case "-h", "-help", "--help":
		name = "help"
	case "-v", "-version", "--version":
		name = "version"
	}
	if wantsHelp(args[1:]) && explainGroup(t.stdout, name) {
		return nil
	}
	c, words, err := find(slices.Concat([]string{name}, args[1:]))
	if err != nil {
		return err
	}
	err = c.run(t, args[words:])
	if errors.Is(err, config.ErrHelp) {
		_, all := withoutAll(args)
		return c.explain(t.stdout, all)
	}
	return err
}

// find returns the command with whose name args begin, and the number of words in the
// name. Of import and import whisper, the longer one counts.
func find(args []string) (found command, words int, err error) {
	name := args[0]
	if strings.HasPrefix(name, "-") {
		return found, 0, &usageError{fmt.Errorf("%s: flags come after the command, for example varve serve %s", name, name)}
	}
	var names []string
	for _, c := range commands() {
		own := strings.Fields(c.name)
		if len(own) > words && len(own) <= len(args) && slices.Equal(own, args[:len(own)]) {
			found, words = c, len(own)
		}
		names = append(names, c.name)
	}
	rest := below(names, name)
	if words == 1 && len(args) > 1 && !strings.HasPrefix(args[1], "-") { // varve export wisper
		var second []string
		for _, long := range rest {
			second = append(second, strings.TrimPrefix(long, name+" "))
		}
		if near := config.Nearest(args[1], second); near != "" {
			return found, 0, &usageError{fmt.Errorf("unknown command %q; did you mean %s?", name+" "+args[1], name+" "+near)}
		}
	}
	if words > 0 {
		return found, words, nil
	}
	if len(rest) > 0 {
		return found, 0, &usageError{fmt.Errorf("%s needs a subcommand: varve %s", name, strings.Join(rest, ", varve "))}
	}
	hint := "varve help lists the commands"
	if near := config.Nearest(name, append(firstWords(names), names...)); near != "" {
		hint = "did you mean " + near + "?"
	}
	return found, 0, &usageError{fmt.Errorf("unknown command %q; %s", name, hint)}
}

// firstWords returns the first words of the names of commands.
func firstWords(names []string) (words []string) {
	for _, name := range names {
		first, _, _ := strings.Cut(name, " ")
		words = append(words, first)
	}
	return words
}

// below returns the names of commands of several words that begin with a word.
func below(names []string, first string) (longer []string) {
	for _, name := range names {
		if strings.HasPrefix(name, first+" ") {
			longer = append(longer, name)
		}
	}
	return longer
}

// help explains the command that args name.
func help(t terminal, args []string) error {
	args, all := withoutAll(args)
	switch {
	case len(args) == 0 || wantsHelp(args):
		overview(t.stdout)
		return nil
	case len(args) == 1 && explainGroup(t.stdout, args[0]):
		return nil
	}
	c, words, err := find(args)
	if err == nil && words < len(args) && !(words+1 == len(args) && c.hasSubcommand(args[words])) {
		err = &usageError{errors.New("help explains one command at a time")}
	}
	if err != nil {
		return err
	}
	return c.explain(t.stdout, all)
}

// explainGroup lists the commands of two words that begin with first, if first itself is not
// a command. It reports whether there are any.
func explainGroup(w io.Writer, first string) bool {
	var group []command
	for _, c := range commands() {
		switch own, rest, _ := strings.Cut(c.name, " "); {
		case own != first:
		case rest == "":
			return false
		default:
			group = append(group, c)
		}
	}
	if len(group) == 0 {
		return false
	}
	fmt.Fprintf(w, "Usage: varve %s SUBCOMMAND\n\n", first)
	for _, c := range group {
		fmt.Fprintf(w, "  varve %-14s  %s\n", c.name, c.synopsis)
	}
	fmt.Fprintf(w, "\nvarve help %s explains the first.\n", group[0].name)
	return true
}

// hasSubcommand reports whether c's help page also explains a subcommand, as the page of
// timeline does.
func (c command) hasSubcommand(name string) bool {
	first, _, _ := strings.Cut(c.usage, " ")
	return slices.Contains(strings.Split(first, "|"), name)
}

// withoutAll removes the flag --all from args, and reports whether it was there.
func withoutAll(args []string) (rest []string, all bool) {
	isAll := func(word string) bool { return word == "--all" || word == "-all" }
	return slices.DeleteFunc(slices.Clone(args), isAll), slices.ContainsFunc(args, isAll)
}

func overview(w io.Writer) {
	fmt.Fprint(w, "Varve is a time series database.\n\nUsage: varve COMMAND [FLAGS]\n\nCommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-14s  %s\n", c.name, c.synopsis)
	}
	fmt.Fprint(w, "\nvarve help COMMAND explains one.\n")
}

// explain writes c's help page. It lists the settings that people need first, or
// all of them.
func (c command) explain(w io.Writer, all bool) error {
	if !c.settings {
		_, err := fmt.Fprintf(w, "Usage: varve %s\n\n%s", strings.TrimSpace(c.name+" "+c.usage), c.help)
		return err
	}
	rest, write := fmt.Sprintf(" (the most used; varve help %s --all lists all %d)", c.name, config.Count()), config.WriteFirstFlags
	if all {
		rest, write = "", config.WriteFlags
	}
	_, err := fmt.Fprintf(w, `Usage: varve %s [FLAGS]

%s
Settings come from the configuration of a KairosDB server (--kairosdb-conf FILE, or
VARVE_KAIROSDB_CONF), that of carbon (--carbon-conf FILE, or VARVE_CARBON_CONF), a YAML
file (--config FILE, or VARVE_CONFIG), the environment (VARVE_SERVER_HTTP_ADDR for
--server-http-addr) and flags; a later one overrides an earlier one.
Short flags: --data-dir, --http-addr, --telnet-addr, --carbon-addr, --pickle-addr,
--storage-schemas, --storage-aggregation.

Flags, with their defaults%s:
`, c.name, c.help, rest)
	if err != nil {
		return err
	}
	return write(w)
}

// errInterrupted is the error of a command that a signal has ended.
var errInterrupted = errors.New("interrupted")

// interrupted returns err, or errInterrupted if a signal has ended ctx before err.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// interruptible returns a context that ends when a signal interrupts the command. A second
// signal ends the process, in case the command waits for something that never happens.
func interruptible() (context.Context, context.CancelFunc) {
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, restore)
	return ctx, restore
}

// wantsHelp reports whether args, of a command without settings, ask for help.
func wantsHelp(args []string) bool {
	return len(args) == 1 && (args[0] == "-h" || args[0] == "-help" || args[0] == "--help")
}
