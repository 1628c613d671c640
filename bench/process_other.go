//go:build !linux

package main

import (
	"net"
	"syscall"
)

// orphansEnd does nothing: measurements need Linux's /proc anyway.
func orphansEnd() *syscall.SysProcAttr { return nil }

// makeBlocking leaves c to Go's poller.
func makeBlocking(*net.TCPConn) error { return nil }
