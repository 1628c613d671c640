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

// ServerID is the id of a server among all that use a keyspace. It is drawn once for
// each data directory: host name and path do not tell servers apart, in containers
// they are often the same. With an error there is an id all the same, for this
// process.
func ServerID(dataDir string) (string, error) {
	err := os.MkdirAll(dataDir, 0o750)
	id, keepErr := readID(filepath.Join(dataDir, idFile))
	return id, errors.Join(err, keepErr)
}

// ToolID is the id of a command that works on the keyspace beside servers. Servers
// have other ids.
func ToolID(dataDir string) string {
	text, err := os.ReadFile(filepath.Join(dataDir, idFile))
	if id := strings.TrimSpace(string(text)); err == nil && id != "" {
		return id + ":repair"
	}
	return drawID() + ":repair"
}

func drawID() string { return strings.ToLower(rand.Text()) }

// readID reads the id from a file, or draws one and writes it down.
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
