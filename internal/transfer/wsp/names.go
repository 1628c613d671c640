package wsp

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"varve/internal/graphite/whisper"
)

// Limits of a list of names.
const (
	maxNames     = 10_000_000
	maxNameBytes = 64 << 10
)

// ReadNames reads names of series with tags, one a line, or as a JSON array of strings,
// the format of graphite-web's /tags/findSeries. It returns them by their hash.
func ReadNames(r io.Reader) (map[string]string, error) {
	in := bufio.NewReader(r)
	next := lineReader(in)
	if first, err := in.Peek(1); err == nil && first[0] == '[' {
		next = arrayReader(in)
	}
	names := map[string]string{}
	for n := 1; ; n++ {
		name, err := next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("name %d: %w", n, err)
		}
		if !strings.Contains(name, ";") {
			continue // the file of a series without tags is named by its path
		}
		if len(names) == maxNames {
			return nil, fmt.Errorf("there are more than %d names; import the files in several parts, each with its own names", maxNames)
		}
		names[whisper.Hash(name)] = name
	}
}

func lineReader(in io.Reader) func() (string, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 4096), maxNameBytes)
	return func() (string, error) {
		if lines.Scan() {
			return strings.TrimSpace(lines.Text()), nil
		}
		return "", cmp.Or(lines.Err(), io.EOF)
	}
}

func arrayReader(in io.Reader) func() (string, error) {
	d := json.NewDecoder(in)
	_, err := d.Token() // the bracket
	return func() (name string, _ error) {
		if err == nil && !d.More() {
			if _, err = d.Token(); err == nil { // the other bracket
				err = io.EOF
			} else {
				err = fmt.Errorf("the end of the array is missing: %w", io.ErrUnexpectedEOF)
			}
		}
		if err == nil {
			err = d.Decode(&name)
		}
		return name, err
	}
}
