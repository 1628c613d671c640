package offline

import (
	"slices"

	"varve/internal/model"
	"varve/internal/record"
)

// kinds are the kinds of series by id, 0 for those that do not exist.
type kinds struct{ byID []model.Kind }

// kind returns the kind of a series, 0 if there is none.
func (k *kinds) kind(id model.SeriesNumber) model.Kind {
	if int(id) >= len(k.byID) {
		return 0
	}
	return k.byID[id]
}

func (k *kinds) define(id model.SeriesNumber, kind model.Kind) {
	if n := int(id) + 1; n > len(k.byID) {
		k.byID = append(slices.Grow(k.byID, n-len(k.byID)), make([]model.Kind, n-len(k.byID))...)
	}
	k.byID[id] = kind
}

// definitions defines the series that a batch introduces. It returns how many they are, and the samples.
func (k *kinds) definitions(batch []byte) (samples []byte, series int64, err error) {
	samples, err = record.Definitions(batch, func(d record.Definition) error {
		series++
		s, err := model.ParseKey(d.Key)
		if err == nil {
			k.define(d.ID, s.Type.Kind())
		}
		return err
	})
	return samples, series, err
}
