package embedded

import (
	"context"

	"varve/internal/blockfile"
	"varve/internal/embedded/offline"
	"varve/internal/wal"
)

// Check checks the block files, the catalogue and the complete part of the log while the
// store remains in use. It leaves out data that is written during the check.
func (s *Store) Check(ctx context.Context, o offline.CheckOptions) (*offline.CheckReport, error) {
	if err := s.log.CheckOpen(ctx); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = s.now
	}
	st := s.acquire()
	defer s.release(st)
	snapshot := s.catalogue.Snapshot()
	defer snapshot.Close()
	r := offline.Running{
		FS: s.fs, Dir: s.dir, Width: s.width, Rows: snapshot, Files: st.blockFiles(), Deletions: st.deletions(), Log: s.neededLog,
	}
	return r.Check(ctx, o)
}

// neededLog reads from the catalogue which part of the log is needed.
func (s *Store) neededLog() (wal.ReplayOptions, error) {
	m, err := s.catalogue.SavedMeta()
	return m.Log(), err
}

// Space reports what takes the disk space while the store remains in use.
func (s *Store) Space(ctx context.Context, o offline.SpaceOptions) (*offline.SpaceReport, error) {
	if err := s.log.CheckOpen(ctx); err != nil {
		return nil, err
	}
	st := s.acquire()
	defer s.release(st)
	r, err := offline.SpaceOf(ctx, st.blockFiles(), o, s.series.Series)
	if err != nil {
		return nil, err
	}
	r.TimelineBytes, err = offline.TimelineBytes(s.fs, s.dir)
	return r, err
}

func (st *state) blockFiles() []*blockfile.File {
	files := make([]*blockfile.File, len(st.files))
	for i, f := range st.files {
		files[i] = f.File
	}
	return files
}
