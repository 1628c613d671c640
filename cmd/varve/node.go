package main

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// nodeFile holds the name of a server among all that use a keyspace.
const nodeFile = "node-id"

// serverNode is the name of a server among all that use a keyspace. It is drawn
// once for each data directory: host name and path do not tell servers apart, in
// containers they are often the same.
func serverNode(dataDir string, log *slog.Logger) string {
	err := os.MkdirAll(dataDir, 0o755)
	node, keepErr := nodeID(filepath.Join(dataDir, nodeFile))
	if err := errors.Join(err, keepErr); err != nil {
		log.Warn("the server's name cannot be kept; after a restart its roll-up tasks and delete jobs rest for a minute", "error", err)
	}
	return node
}

// toolNode is the name of a command that works on the keyspace beside servers.
// Servers have other names.
func toolNode(dataDir string) string {
	text, err := os.ReadFile(filepath.Join(dataDir, nodeFile))
	if id := strings.TrimSpace(string(text)); err == nil && id != "" {
		return id + ":repair"
	}
	return strings.ToLower(rand.Text()) + ":repair"
}

// nodeID reads the name of the server from a file, or draws one and writes it
// down. With an error there is a name all the same, for this process.
func nodeID(path string) (string, error) {
	text, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(text)); err == nil && id != "" {
		return id, nil
	}
	id := strings.ToLower(rand.Text())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	return id, os.WriteFile(path, []byte(id+"\n"), 0o644)
}
