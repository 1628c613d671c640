package main

import (
	"net"
	"syscall"
)

// orphansEnd makes a child end when this process is killed.
func orphansEnd() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// makeBlocking makes reads of c wait in the kernel instead of Go's poller.
func makeBlocking(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.SetNonblock(int(fd), false) }); err != nil {
		return err
	}
	return failed
}
