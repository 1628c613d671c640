package originals

import (
	"os/exec"
	"syscall"
)

// endWithTest makes the kernel kill c when the test process ends for any reason.
func endWithTest(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// pause suspends the process.
func (c *child) pause() { c.signal(syscall.SIGSTOP) }

// resume continues a suspended process.
func (c *child) resume() { c.signal(syscall.SIGCONT) }
