package varve.clients;

import java.util.TreeMap;
import org.kairosdb.client.response.GroupResult;
import org.kairosdb.client.response.grouping.BinGroupResult;
import org.kairosdb.client.response.grouping.DefaultGroupResult;
import org.kairosdb.client.response.grouping.TagGroupResult;
import org.kairosdb.client.response.grouping.TimeGroupResult;
import org.kairosdb.client.response.grouping.ValueGroupResult;

/** Writes down what the client made of an entry of group_by. */
final class Groups {
    private Groups() {}

    static String text(GroupResult group) {
        if (group instanceof DefaultGroupResult g) {
            return "type " + g.getType();
        } else if (group instanceof TagGroupResult g) {
            return "tag " + new TreeMap<>(g.getGroup());
        } else if (group instanceof TimeGroupResult g) {
            return "time " + g.getGroup().getGroupNumber() + " of " + g.getGroupCount();
        } else if (group instanceof ValueGroupResult g) {
            return "value " + g.getGroup().getGroupNumber() + " by " + g.getRangeSize();
        } else if (group instanceof BinGroupResult g) {
            return "bin " + g.getBinNumber() + " of " + g.getBins();
        }
        return group.getName();
    }
}
