//go:build !unix

package stream

// more cannot tell here whether bytes have arrived.
func (c *Conn) more() bool { return !c.meter.Load().waiting() }
