package kairos

import (
	"encoding/base64"
	"errors"
	"fmt"

	"varve/internal/datatype"
	"varve/internal/kairos/agg"
	"varve/internal/model"
)

// typeOfGroup finds how the values of a group of results are written, nil if they
// are numbers or texts, or of a type that is not registered.
func typeOfGroup(types datatype.Registry, groupType string) *datatype.Type {
	if groupType == agg.TypeComplex {
		return types.Stored(model.TypeComplex)
	}
	return types.Stored(model.Type(groupType))
}

// appendTyped writes a value that is neither number nor text: as its type says,
// else as the base64 of what is stored, since only its owner knows what that
// means.
func appendTyped(dst []byte, p *agg.Point, typ *datatype.Type) ([]byte, error) {
	if typ == nil {
		dst = base64.StdEncoding.AppendEncode(append(dst, '"'), p.Data)
		return append(dst, '"'), nil
	}
	dst, err := typ.Append(dst, p.Data, appendDouble)
	var infinite *datatype.NotFiniteError
	switch {
	case errors.As(err, &infinite):
		return dst, notANumber(p.TimeMS, infinite.Value)
	case err != nil:
		return dst, fmt.Errorf("%s value at %d: %w", typ.Name, p.TimeMS, err)
	}
	return dst, nil
}
