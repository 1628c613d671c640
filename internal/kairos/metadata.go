package kairos

import (
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"varve/internal/httpapi"
	"varve/internal/query"
	"varve/internal/store"
)

// guardMetadata refuses services that begin with _, which the server uses itself: 401
// without a body, as in KairosDB.
func guardMetadata(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !store.OwnService(r.PathValue("service")) {
			return h(w, r)
		}
		httpapi.SetHeaders(w.Header())
		httpapi.WriteEmpty(w, http.StatusUnauthorized)
		return nil
	}
}

// getServiceKeys lists each service key once, where KairosDB repeats it for each
// of its keys.
func (a *API) getServiceKeys(w http.ResponseWriter, r *http.Request) error {
	return a.list(w, r, a.store.ServiceKeys(r.Context(), r.PathValue("service")))
}

func (a *API) getKeys(w http.ResponseWriter, r *http.Request) error {
	prefix := r.URL.Query().Get("startsWith")
	return a.list(w, r, a.store.Keys(r.Context(), r.PathValue("service"), r.PathValue("serviceKey"), prefix))
}

// list answers with texts.
func (a *API) list(w http.ResponseWriter, r *http.Request, texts iter.Seq2[string, error]) error {
	return a.answer(w, r, func(out *answer) error {
		list := nameList{answer: out}
		list.begin()
		for text, err := range texts {
			if err != nil {
				return err
			}
			if err := list.add([]string{text}); err != nil {
				return err
			}
		}
		list.end("", false)
		return nil
	})
}

// getValue answers with the stored text unchanged. The text is charged to the memory of
// queries until the client has received it.
func (a *API) getValue(w http.ResponseWriter, r *http.Request) error {
	plain := wantsPlainText(r)
	held := a.engine.Unsent(r.Context(), r.RemoteAddr)
	defer held.Free()
	if err := held.AtLeast(int64(a.config.MaxValueSize)); err != nil { // before the text is read
		return err
	}
	value, err := a.store.Get(r.Context(), r.PathValue("service"), r.PathValue("serviceKey"), r.PathValue("key"))
	switch {
	case errors.Is(err, store.ErrNotFound) && plain:
		setMetadataHeaders(w.Header(), plain)
		httpapi.WriteEmpty(w, http.StatusNotFound)
		return nil
	case errors.Is(err, store.ErrNotFound):
		httpapi.WriteErrors(w, http.StatusNotFound, "Key not found")
		return nil
	case err != nil:
		return err
	}
	held.AtMost(int64(len(value.Text)))
	if err := held.AtLeast(int64(len(value.Text))); err != nil { // another program stored it
		return err
	}
	setMetadataHeaders(w.Header(), plain)
	w.Header().Set("Last-Modified", value.Modified.UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Length", strconv.Itoa(len(value.Text)))
	httpapi.WriteText(held.Writer(w, httpapi.Cut(w)), value.Text) // an error means that the client is gone
	return nil
}

// wantsPlainText reports whether the client accepts text/plain but neither JSON
// nor any type.
func wantsPlainText(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accept, "text/plain") && !strings.Contains(accept, "application/json") && !strings.Contains(accept, "*/*")
}

func setMetadataHeaders(h http.Header, plain bool) {
	httpapi.SetHeaders(h)
	if plain {
		h.Set("Content-Type", "text/plain;charset=utf-8")
	}
}

// maxMetadataName is the longest service, service key and key, in bytes.
const maxMetadataName = 1024

// checkMetadataNames refuses names that are too long to store.
func checkMetadataNames(r *http.Request) error {
	for _, part := range []struct{ value, what string }{
		{"service", "service"}, {"serviceKey", "service key"}, {"key", "key"},
	} {
		if name := r.PathValue(part.value); len(name) > maxMetadataName {
			return &store.LimitError{Limit: "bytes of a metadata name", Max: maxMetadataName, Need: int64(len(name)), What: part.what + " " + clipName(name)}
		}
	}
	return nil
}

func (a *API) postValue(w http.ResponseWriter, r *http.Request) error {
	if err := checkMetadataNames(r); err != nil {
		return err
	}
	text, err := a.engine.ReadText(r.Context(), r.RemoteAddr, r.Body, query.TextLimit{
		Key: "bytes of a metadata value", Max: int64(a.config.MaxValueSize), What: "bytes of a metadata value", Announced: r.ContentLength,
	})
	if err != nil {
		return err
	}
	defer text.Close()
	if err := a.store.Set(r.Context(), r.PathValue("service"), r.PathValue("serviceKey"), r.PathValue("key"), string(text.Bytes())); err != nil {
		return err
	}
	writeDone(w)
	return nil
}

func (a *API) deleteValue(w http.ResponseWriter, r *http.Request) error {
	if err := a.store.Unset(r.Context(), r.PathValue("service"), r.PathValue("serviceKey"), r.PathValue("key")); err != nil {
		return err
	}
	if a.Log != nil {
		a.Log.Info("metadata deleted", "service", clipName(r.PathValue("service")), "service_key", clipName(r.PathValue("serviceKey")),
			"key", clipName(r.PathValue("key")), "client", r.RemoteAddr)
	}
	writeDone(w)
	return nil
}
