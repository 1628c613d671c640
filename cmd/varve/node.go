package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"varve/internal/config"
)

// nodeFile holds the name of a server among all that use a keyspace.
const nodeFile = "node-id"

// shared returns by what name the server is known to others that use the same
// store, and what makes its points visible to them. The name is empty where the
// store is its own.
func shared(c config.Config, s *backend, log *slog.Logger) (node string, flush func(context.Context) error) {
	store, ok := s.Store.(interface {
		Flush(ctx context.Context) error
	})
	if c.Store != config.Cassandra || !ok {
		return "", nil
	}
	node, err := nodeID(filepath.Join(c.DataDir, nodeFile))
	if err != nil {
		log.Warn("the server's name cannot be kept; after a restart its roll-up tasks rest for a minute", "error", err)
	}
	return node, store.Flush
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
