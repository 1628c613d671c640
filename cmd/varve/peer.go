package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

// Variables with which commands reach a server that asks who they are.
const (
	tokenVariable = "VARVE_TOKEN"   // what they show
	caVariable    = "VARVE_CA_FILE" // the authority of the server's certificate; with it they speak TLS
)

// A peer is how commands reach servers.
type peer struct {
	client *http.Client
	scheme string
	token  string
	err    error
}

var thePeer = sync.OnceValue(func() peer {
	p := peer{client: http.DefaultClient, scheme: "http", token: strings.TrimSpace(os.Getenv(tokenVariable))}
	path := os.Getenv(caVariable)
	if path == "" {
		return p
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return peer{err: &usageError{fmt.Errorf("environment %s: %w", caVariable, err)}}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return peer{err: &usageError{fmt.Errorf("environment %s: %s has no certificate in PEM", caVariable, path)}}
	}
	own := http.DefaultTransport.(*http.Transport).Clone()
	own.TLSClientConfig = &tls.Config{RootCAs: pool}
	p.client, p.scheme = &http.Client{Transport: own}, "https"
	return p
})

// ask sends a request of a command to the server at addr, host:port. kind is the type of
// the body, if it has one that matters.
func ask(ctx context.Context, method, addr, path, kind string, body io.Reader) (*http.Response, error) {
	p := thePeer()
	if p.err != nil {
		return nil, p.err
	}
	request, err := http.NewRequestWithContext(ctx, method, p.scheme+"://"+addr+path, body)
	if err != nil {
		return nil, &usageError{fmt.Errorf("flag --http-addr: %w", err)}
	}
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	if p.token != "" {
		request.Header.Set("Authorization", "Bearer "+p.token)
	}
	return p.client.Do(request)
}
