package originals

import (
	"os/exec"
	"syscall"
)

// endWithTest makes the kernel kill c when the test process ends, however that
// happens.
func endWithTest(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// pause halts the process.
func (c *child) pause() { c.signal(syscall.SIGSTOP) }

// resume lets a paused process go on.
func (c *child) resume() { c.signal(syscall.SIGCONT) }
