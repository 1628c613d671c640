package main

import "syscall"

// orphansEnd makes a child end when this process is killed.
func orphansEnd() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
