package cluster

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// idFile holds the id of a server, in its data directory.
const idFile = "node-id"

// ServerID returns the id that distinguishes a server from all others that use a keyspace. It
// is generated at random once per data directory, because in containers host name and path are
// often the same. If ServerID fails, it also returns an id that is valid for this process only.
func ServerID(dataDir string) (string, error) {
	err := os.MkdirAll(dataDir, 0o750)
	id, keepErr := readID(filepath.Join(dataDir, idFile))
	return id, errors.Join(err, keepErr)
}

// ToolID returns the id of a command that works on the keyspace beside servers. No server has
// this id.
func ToolID(dataDir string) string {
	text, err := os.ReadFile(filepath.Join(dataDir, idFile))
	if id := strings.TrimSpace(string(text)); err == nil && id != "" {
		return id + ":repair"
	}
	return drawID() + ":repair"
}

func drawID() string { return strings.ToLower(rand.Text()) }

// readID reads the id from a file, or generates one and stores it there.
func readID(path string) (string, error) {
	text, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(text)); err == nil && id != "" {
		return id, nil
	}
	id := drawID()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	return id, os.WriteFile(path, []byte(id+"\n"), 0o644)
}
