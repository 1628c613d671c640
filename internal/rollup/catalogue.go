package rollup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"varve/internal/downsample"
	"varve/internal/store"
)

// Where tasks are stored. The first three are KairosDB's. The key is the task's id; it
// overrides an id in the JSON.
const (
	service       = "_Rollups"
	configKey     = "Config"
	statusKey     = "Status"
	assignmentKey = "Assignment"
	watermarkKey  = "Watermark"
	lateKey       = "Late"
	handedKey     = "Handed"
)

// A catalogue stores tasks, their status and their watermarks.
type catalogue struct{ values store.KeyValues }

// ids lists the ids of all tasks, ascending.
func (c catalogue) ids(ctx context.Context) (ids []string, err error) {
	for id, err := range c.values.Keys(ctx, service, configKey, "") {
		if err != nil {
			return nil, fmt.Errorf("list roll-up tasks: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// tasks lists the stored texts of all tasks by id, ascending.
func (c catalogue) tasks(ctx context.Context) (ids, texts []string, err error) {
	if ids, err = c.ids(ctx); err != nil {
		return nil, nil, err
	}
	kept := ids[:0]
	for _, id := range ids {
		text, ok, err := c.get(ctx, configKey, id)
		if err != nil {
			return nil, nil, err
		}
		if ok { // else the task was deleted since it was listed
			kept, texts = append(kept, id), append(texts, text)
		}
	}
	return kept, texts, nil
}

// get reads one text; ok is false if there is none.
func (c catalogue) get(ctx context.Context, key, id string) (text string, ok bool, err error) {
	v, err := c.values.Get(ctx, service, key, id)
	if errors.Is(err, store.ErrNotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read %s of roll-up task %s: %w", key, id, err)
	}
	return v.Text, true, nil
}

func (c catalogue) set(ctx context.Context, key, id, text string) error {
	if err := c.values.Set(ctx, service, key, id, text); err != nil {
		return fmt.Errorf("store %s of roll-up task %s: %w", key, id, err)
	}
	return nil
}

func (c catalogue) unset(ctx context.Context, key, id string) error {
	if err := c.values.Unset(ctx, service, key, id); err != nil {
		return fmt.Errorf("delete %s of roll-up task %s: %w", key, id, err)
	}
	return nil
}

// getJSON reads a value in JSON; ok is false if there is none. doing describes the
// operation in the error for a text that is not valid JSON for into.
func (c catalogue) getJSON(ctx context.Context, key, id string, into any, doing string) (ok bool, err error) {
	text, ok, err := c.get(ctx, key, id)
	if err != nil || !ok {
		return false, err
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return false, fmt.Errorf("%s: %w", doing, err)
	}
	return true, nil
}

// setJSON stores a value of texts and numbers in JSON, with <, > and & escaped, as
// KairosDB does.
func (c catalogue) setJSON(ctx context.Context, key, id string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	return c.set(ctx, key, id, string(text))
}

// remove deletes a task and everything stored about it. The task is deleted first:
// after a crash in between, nothing reads the remaining entries.
func (c catalogue) remove(ctx context.Context, id string) error {
	if err := c.unset(ctx, configKey, id); err != nil {
		return err
	}
	for _, key := range []string{lateKey, handedKey} {
		names, err := c.ofNodes(ctx, key, id)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := c.unset(ctx, key, name); err != nil {
				return err
			}
		}
	}
	for _, key := range []string{statusKey, watermarkKey, lateKey, assignmentKey} {
		if err := c.unset(ctx, key, id); err != nil {
			return err
		}
	}
	return nil
}

// modified is when any task was last stored or deleted.
func (c catalogue) modified(ctx context.Context) (time.Time, error) {
	return c.values.Modified(ctx, service, configKey)
}

// status returns a task's status, nil if there is none.
func (c catalogue) status(ctx context.Context, id string) (*status, error) {
	s := &status{}
	ok, err := c.getJSON(ctx, statusKey, id, s, "read the status of a roll-up task")
	if err != nil || !ok {
		return nil, err
	}
	return s, nil
}

// watermarks returns a task's watermarks, none if it has not run.
func (c catalogue) watermarks(ctx context.Context, id string) (watermarks, error) {
	w := watermarks{}
	_, err := c.getJSON(ctx, watermarkKey, id, &w, "read the watermarks of a roll-up task")
	return w, err
}

// ofNodes lists the names under which nodes have stored something about a task.
func (c catalogue) ofNodes(ctx context.Context, key, id string) (names []string, err error) {
	for name, err := range c.values.Keys(ctx, service, key, id+"/"+nodePrefix) {
		if err != nil {
			return nil, fmt.Errorf("list %s of roll-up task %s: %w", key, id, err)
		}
		names = append(names, name)
	}
	return names, nil
}

// late returns the spans that a task has to recompute, by source.key. key is that of
// an entry under Late or under Handed.
func (c catalogue) late(ctx context.Context, key, id string) (all map[string]downsample.Spans, err error) {
	_, err = c.getJSON(ctx, key, id, &all, "read the late points of roll-up task "+id)
	return all, err
}
