package api

import (
	"context"
	"sync"
	"testing"
	"time"

	"varve/internal/query"
)

// takeDeletePlaces takes all places of deletes, until they are given back.
func (s *served) takeDeletePlaces() (release func()) {
	ended := make(chan struct{})
	var group sync.WaitGroup
	for {
		ctx, cancel := context.WithTimeout(s.t.Context(), 100*time.Millisecond)
		began, late := make(chan struct{}), make(chan struct{})
		group.Go(func() {
			defer close(late)
			s.api.queries.Delete(ctx, "", func(context.Context) error {
				close(began)
				<-ended
				return nil
			})
		})
		select {
		case <-began:
			cancel()
		case <-late: // no place was left
			cancel()
			return sync.OnceFunc(func() { close(ended); group.Wait() })
		}
	}
}

// TestDeletesWait: deletes of events have the places of deletes, wait for one, and are refused
// if none becomes free. Others are served meanwhile.
func TestDeletesWait(t *testing.T) {
	config := query.DefaultConfig()
	config.MaxWait = 50 * time.Millisecond
	s := serveQueries(t, config)
	s.wantPart(200, `"accepted":2`, "POST", "/t/events", `[{"time":1,"id":"a","data":1},{"time":2,"id":"b","data":2}]`)
	release := s.takeDeletePlaces()
	defer release()
	for _, path := range []string{"/t/events?id=a", "/t/events?until=1", "/t"} {
		s.wantPart(503, "nothing was deleted", "DELETE", path, "")
	}
	s.wantPart(200, `"accepted":1`, "POST", "/t/events", `{"time":3,"id":"c","data":3}`)
	s.wantPart(200, `"id":"c"`, "GET", "/t/latest", "")
	s.wantPart(200, `"id":"a"`, "GET", "/t/events", "")
	release()
	s.want(204, "", "DELETE", "/t/events?id=a", "")
	s.want(204, "", "DELETE", "/t", "")
}
