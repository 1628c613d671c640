//go:build !unix

package stream

// more cannot tell here what has come.
func (c *Conn) more() bool { return !c.meter.Load().waiting() }
