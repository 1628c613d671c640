package remove

import (
	"context"
	"iter"

	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/store"
)

// Delete jobs of the cluster that is written to are stored under jobServiceKey and
// cancelServiceKey, those of another cluster under these keys and its name. Without
// service_index, jobs end with the process.

func (j *jobs) serviceKey(kind string) string {
	if j.d.cluster == "" {
		return kind
	}
	return kind + "/" + j.d.cluster
}

func (j *jobs) get(ctx context.Context, kind, id string) (store.Value, error) {
	ks, err := j.d.services()
	if err != nil {
		return store.Value{}, err
	}
	return ks.Get(ctx, schema.OwnService, j.serviceKey(kind), id)
}

func (j *jobs) set(ctx context.Context, kind, id, text string) error {
	ks, err := j.d.services()
	if err != nil || !ks.Tables.ServiceIndex {
		return err
	}
	return ks.Set(ctx, schema.OwnService, j.serviceKey(kind), id, text)
}

func (j *jobs) unset(ctx context.Context, kind, id string) error {
	ks, err := j.d.services()
	if err != nil || !ks.Tables.ServiceIndex {
		return err
	}
	return ks.Unset(ctx, schema.OwnService, j.serviceKey(kind), id)
}

func (j *jobs) keys(ctx context.Context, kind string) iter.Seq2[string, error] {
	ks, err := j.d.services()
	if err != nil {
		return func(yield func(string, error) bool) { yield("", err) }
	}
	return ks.Keys(ctx, schema.OwnService, j.serviceKey(kind), "")
}
