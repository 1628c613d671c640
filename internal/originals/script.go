package originals

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// fetchLimit limits the time to download the jars of a program, including retries and
// waiting for another test binary that downloads the same.
const fetchLimit = 15 * time.Minute

// repository returns the folder of go.mod. Tests run in their package's folder.
func repository(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test's folder: the scripts that start the originals cannot be found")
		}
		dir = parent
	}
}

// fetched has the results of fetch by command line.
var fetched struct {
	sync.Mutex
	missing map[string]string // what is missing; "": the jars are present
}

// need fetches the jars of a script and returns the path of the script. If something is
// missing, it skips the test with a message that says what.
func need(t testing.TB, name string, versions ...string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skipf("%s: processes that must not outlive the test are started on Linux only", name)
	}
	script := filepath.Join(repository(t), "scripts", name)
	args := append([]string{"jars"}, versions...)
	if missing := fetch(script, args); missing != "" {
		t.Skipf("%s %s: %s", name, strings.Join(args, " "), missing)
	}
	return script
}

// fetch runs a script that fetches jars, once for each command line. It returns what is
// missing.
func fetch(script string, args []string) string {
	line := script + " " + strings.Join(args, " ")
	fetched.Lock()
	defer fetched.Unlock()
	if missing, done := fetched.missing[line]; done {
		return missing
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchLimit)
	defer cancel()
	command := exec.CommandContext(ctx, script, args...)
	var said bytes.Buffer
	command.Stderr = &said
	// A download that outlives the script would keep the pipe open, and Run waiting.
	command.WaitDelay = time.Second
	endWithTest(command)
	err := command.Run()
	missing := ""
	switch {
	case ctx.Err() != nil:
		missing = "not done after " + fetchLimit.String()
	case err != nil:
		missing = strings.TrimSpace(said.String()) + " (" + err.Error() + ")"
	}
	if fetched.missing == nil {
		fetched.missing = map[string]string{}
	}
	fetched.missing[line] = missing
	return missing
}

// errEnded is the error of a process that ended before it was ready.
var errEnded = errors.New("it ended")
