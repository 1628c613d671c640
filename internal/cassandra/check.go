package cassandra

import (
	"context"
	"errors"
	"fmt"

	"varve/internal/model"
	"varve/internal/store"
)

var _ store.SampleChecker = (*Store)(nil)

// Samples that the layout cannot store are refused before they are acknowledged. A limit that
// is visible neither in the settings nor in the keyspace, such as a guardrail of the cluster,
// is only noticed when samples are written.

// Create implements store.Appender.
func (s *Store) Create(ctx context.Context, series model.Series) (store.Ref, error) {
	if err := s.written.tables.CheckSeries(series); err != nil {
		return 0, err
	}
	return s.Appender.Create(ctx, series)
}

// CheckSample implements store.SampleChecker.
func (s *Store) CheckSample(_ store.Ref, k model.Kind, ms int64, value uint64, data []byte, ttl uint32) error {
	return s.written.tables.CheckSample(s.now().UnixMilli(), k, ms, value, data, ttl)
}

// checkBatch refuses a batch with a sample that cannot be stored.
func (s *Store) checkBatch(b *store.Batch, kinds []model.Kind) error {
	nowMS := s.now().UnixMilli()
	for i, in := range b.Samples {
		var data []byte
		if kinds[i].Variable() {
			data = b.Bytes(in)
		}
		err := s.written.tables.CheckSample(nowMS, kinds[i], in.TimeMS, in.Value, data, in.TTL)
		if input, ok := errors.AsType[*store.InputError](err); ok {
			return &store.InputError{Reason: fmt.Sprintf("sample %d of the batch: %s", i, input.Reason)}
		}
	}
	return nil
}
