//go:build !linux

package main

import "syscall"

// orphansEnd is of no use elsewhere: there is no /proc to measure from.
func orphansEnd() *syscall.SysProcAttr { return nil }
