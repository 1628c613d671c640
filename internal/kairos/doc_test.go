package kairos

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// example is a curl command and, if one follows, the JSON of its answer.
var example = regexp.MustCompile("(?s)```sh\n(curl .*?)\n```\n(?:```json\n(.*?)\n```)?")

// curl matches the forms that docs/api.md uses: curl [-X method] url [-d 'body'].
var curl = regexp.MustCompile(`(?s)^curl (?:-X (\w+) )?'?localhost:8080([^ ']*)'?(?: -d '(.*)')?$`)

// Every example in docs/api.md works.
func TestDocExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := example.FindAllStringSubmatch(string(page), -1)
	if len(examples) < 8 {
		t.Fatalf("%d examples", len(examples))
	}
	s := startServer(t)
	for _, ex := range examples {
		parts := curl.FindStringSubmatch(ex[1])
		if parts == nil {
			t.Fatalf("not understood: %s", ex[1])
		}
		step := goldenStep{Method: parts[1], Path: parts[2], ExpectStatus: http.StatusOK}
		if parts[3] != "" {
			step.Text = &parts[3]
		}
		if ex[2] == "" {
			step.ExpectStatus = http.StatusNoContent
		} else {
			step.Expect = []byte(strings.ReplaceAll(ex[2], `"..."`, `"$any"`))
		}
		if err := s.step(&step); err != nil {
			t.Errorf("%s\n%v", strings.TrimSpace(ex[1]), err)
		}
	}
}
