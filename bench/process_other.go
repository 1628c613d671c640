//go:build !linux

package main

import (
	"net"
	"syscall"
)

// orphansEnd is of no use elsewhere: there is no /proc to measure from.
func orphansEnd() *syscall.SysProcAttr { return nil }

// makeBlocking leaves c to Go's poller.
func makeBlocking(*net.TCPConn) error { return nil }
