"""Albums and photos with tickets as primary keys, in SQLAlchemy. README.md says how to run it."""

import os

from sqlalchemy import BigInteger, ForeignKey, String, create_engine, func, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from ticketd_client import Tickets
from ticketd_client.sqlalchemy import TicketDefault

DATABASE_URL = os.environ.get("DATABASE_URL", "sqlite:///photos.db")
tickets = Tickets(os.environ.get("ID_SERVERS", "http://127.0.0.1:8000").split(","))


class Base(DeclarativeBase):
    pass


class Album(Base):
    __tablename__ = "albums"

    id: Mapped[int] = mapped_column(BigInteger, default=TicketDefault(tickets, "groups"), primary_key=True)
    title: Mapped[str] = mapped_column(String(100))
    photos: Mapped[list["Photo"]] = relationship(back_populates="album")


class Photo(Base):
    __tablename__ = "photos"

    id: Mapped[int] = mapped_column(BigInteger, default=TicketDefault(tickets, "photos"), primary_key=True)
    title: Mapped[str] = mapped_column(String(100))
    album_id: Mapped[int] = mapped_column(ForeignKey("albums.id"))
    album: Mapped[Album] = relationship(back_populates="photos")


def main() -> None:
    engine = create_engine(DATABASE_URL)
    with Session(engine) as session:
        # objects: all the photos' tickets are taken in one go, when the session flushes
        album = Album(title="Summer", photos=[Photo(title=f"Beach {number}") for number in range(1000)])
        session.add(album)
        session.commit()
        print(f"album {album.id} has {len(album.photos)} photos, {album.photos[0].id} is the first")

        # rows: so are those of an INSERT
        rows = [{"title": f"Forest {number}", "album_id": album.id} for number in range(1000)]
        session.execute(insert(Photo), rows)
        session.commit()
        print(f"{session.scalar(select(func.count()).select_from(Photo))} photos in the database")
    engine.dispose()


if __name__ == "__main__":
    main()
