package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// listed is a list of files below a directory that a variable names, as arguments.
var listed = regexp.MustCompile(`\bfind "?\$.*\| *xargs`)

// A clone may be in a directory whose name has a space. xargs divides names there, so a script
// first changes to the directory, and lists names relative to it.
func TestScriptsListRelativeNames(t *testing.T) {
	scripts, err := filepath.Glob("../../scripts/*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if listed.MatchString(line) {
				t.Errorf("%s: %s", filepath.Base(script), line)
			}
		}
	}
}
