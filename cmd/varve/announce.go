package main

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"unicode"

	"varve/internal/config"
	"varve/internal/remote"
	"varve/internal/server"
)

// announce tells a person what to do next.
func announce(w io.Writer, c config.Config, srv *server.Server) {
	dir := c.DataDir
	if full, err := filepath.Abs(dir); err == nil && full != dir {
		dir += " (" + full + ")"
	}
	api, lines := remote.Dialable(srv.Addr("http")), remote.Dialable(srv.Addr("telnet"))
	fmt.Fprintf(w, "Varve %s is ready.\n\n", versionText())
	for _, stream := range server.StreamNames() {
		if addr := srv.Addr(stream); addr != "" {
			fmt.Fprintln(w, announced(stream, remote.Dialable(addr), c.Server.TLS.Speaks(stream)))
		}
	}
	fmt.Fprintf(w, "  data    %s\n\n", dir)
	curl := fmt.Sprintf("curl -sS%s%s %s%s", trust(c), credentials(c), scheme(c.Server.TLS.Speaks("http")), api)
	if c.Auth.Enabled {
		fmt.Fprintf(w, "Create a token, if there is none yet:\n  TOKEN=$(varve token create me --role read,write%s)\n", tokenPlace(c))
	}
	if lines == "" || c.Server.TLS.Speaks("telnet") || c.Auth.Enabled {
		fmt.Fprintf(w, "Send a first point:\n  %s/api/v1/datapoints -d \"%s\"\n", curl, firstPoint)
	} else {
		host, port, _ := net.SplitHostPort(lines)
		fmt.Fprintf(w, "Send a first point:\n  echo \"put demo.load $(date +%%s) 1.5 host=a\" | nc -w 1 %s %s\n", host, port)
	}
	fmt.Fprintf(w, "Read it back:\n  %s/api/v1/datapoints/query -d '%s'\n\nCtrl-C stops the server.\n", curl, firstQuery)
}

// announced returns the line about a stream.
func announced(stream, addr string, secured bool) string {
	name, notes := stream, []string(nil)
	switch stream {
	case "http":
		return "  HTTP    " + scheme(secured) + addr
	case "pprof":
		return "  pprof   " + scheme(secured) + addr + "/debug/pprof/"
	case "carbon":
		notes = []string{"lines"}
	case "pickle":
		name, notes = "carbon", []string{"pickles"}
	case "carbon_udp":
		name, notes = "carbon", []string{"lines, UDP"}
	}
	if secured {
		notes = append(notes, "TLS")
	}
	line := fmt.Sprintf("  %-7s %s", name, addr)
	if len(notes) > 0 {
		line += " (" + strings.Join(notes, ", ") + ")"
	}
	return line
}

func scheme(secured bool) string {
	if secured {
		return "https://"
	}
	return "http://"
}

// tokenPlace returns the flags with which varve token uses the server's token file.
func tokenPlace(c config.Config) string {
	flags := " --data-dir " + quoted(c.DataDir)
	if c.Auth.TokenFile != "" {
		flags += " --auth-token-file " + quoted(c.Auth.TokenFile)
	}
	return flags
}

// quoted is a word of a shell's command line.
func quoted(word string) string {
	if !strings.ContainsFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("./_-+:@%,", r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// trust returns the flags with which curl accepts the server's certificate, regardless of the
// authority that has signed it.
func trust(c config.Config) string {
	if !c.Server.TLS.Speaks("http") {
		return ""
	}
	return " --cacert " + quoted(c.Server.TLS.CertFile)
}

// credentials returns the flags with which curl authenticates.
func credentials(c config.Config) string {
	if !c.Auth.Enabled {
		return ""
	}
	return ` -H "Authorization: Bearer $TOKEN"`
}

// firstPoint is a point of now, within double quotes of a shell.
const firstPoint = `[{\"name\":\"demo.load\",\"tags\":{\"host\":\"a\"},\"datapoints\":[[$(date +%s)000,1.5]]}]`

// firstQuery reads the last hour of the metric that announce sends a point of.
const firstQuery = `{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"demo.load"}]}`
