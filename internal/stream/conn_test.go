package stream

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// A client that is still sending when the server closes the connection gets the answer, and no reset.
func TestLinger(t *testing.T) {
	l, _ := listen(t, Options{Limit: 1}, 0)
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Write([]byte("enough"))
		c.(*Conn).Linger()
		c.Close()
	}()
	client.SetDeadline(time.Now().Add(2 * time.Minute))
	for range 20 { // less than the server reads, including the buffers of the kernel
		if _, err := client.Write(make([]byte, 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	var got bytes.Buffer
	if _, err := got.ReadFrom(client); err != nil || got.String() != "enough" {
		t.Errorf("got %q, %v", got.String(), err)
	}
	client.Close() // ends the reading
	<-ended
}
