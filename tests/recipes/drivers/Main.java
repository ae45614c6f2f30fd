// Drives the recipe for Java: `take SEQUENCE COUNT` prints ids; `store COUNT` stores so many rows in a database in memory
// and prints the ids that are stored there.
import java.util.Collections;
import java.util.List;
import java.util.Map;
import javax.persistence.Persistence;

public class Main {
    public static void main(String[] arguments) throws InterruptedException {
        int count = Integer.parseInt(arguments[arguments.length - 1]);
        if (arguments[0].equals("take")) {
            Tickets.take(arguments[1], count).forEach(System.out::println);
            return;
        }
        var factory = Persistence.createEntityManagerFactory("photos", Map.of(
                "javax.persistence.jdbc.url", "jdbc:h2:mem:photos;DB_CLOSE_DELAY=-1",
                "javax.persistence.schema-generation.database.action", "create",
                "eclipselink.logging.level", "SEVERE"));
        var manager = factory.createEntityManager();
        var album = new PhotoAlbum(manager);
        album.add(List.of("alone"));
        album.add(Collections.nCopies(count - 1, "together"));
        manager.clear();
        var stored = manager.createNativeQuery("SELECT CAST(id AS VARCHAR) FROM photos").getResultList();
        stored.forEach(id -> {
            if (manager.find(Photo.class, Long.valueOf((String) id)) == null) throw new IllegalStateException("no " + id);
            System.out.println(id);
        });
        factory.close();
    }
}
